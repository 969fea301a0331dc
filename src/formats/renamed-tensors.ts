/** A tensor source with renamed tensors. */
import type { TensorSource } from "./tensor-source.ts";

/** The source `base` with names mapped by `shown`, without tensors for which it returns null; new names must be distinct. */
export function renamedTensors(base: TensorSource, shown: (name: string) => string | null): TensorSource {
  const storedNames = new Map(
    base.names.flatMap((name) => {
      const own = shown(name);
      return own === null ? [] : [[own, name]];
    }),
  );
  const stored = (name: string) => storedNames.get(name) ?? name;
  return {
    names: [...storedNames.keys()],
    has: (name) => storedNames.has(name),
    info: (name) => base.info(stored(name)),
    read: (name) => base.read(stored(name)),
    readRows: (name, first, count) => base.readRows(stored(name), first, count),
    lowBit: (name) => base.lowBit?.(stored(name)) ?? null,
    storedType: (name) => base.storedType?.(stored(name)) ?? base.info(stored(name)).dtype,
  };
}
