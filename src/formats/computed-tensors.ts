/** A tensor source in which some matrices are computed from stored tensors: dequantized, concatenated or reordered. */
import { InvalidArgumentError } from "../errors.ts";
import { quote } from "./json.ts";
import type { LowBitTensor, OpenTensors } from "./tensor-source.ts";

/** A matrix [rows, columns] of float32 values. */
export interface ComputedMatrix {
  readonly name: string;
  readonly shape: readonly [number, number];
  /** Name of the storage format, for messages. */
  readonly stored: string;
  /** Names of the tensors that it is computed from, which the source no longer lists. */
  readonly parts: readonly string[];
  readonly lowBit: LowBitTensor | null;
  rows(first: number, count: number): Promise<Float32Array>;
}

/** The source `base` with `matrices` in place of the tensors that they are computed from. */
export function withComputed(base: OpenTensors, matrices: readonly ComputedMatrix[]): OpenTensors {
  if (matrices.length === 0) return base;
  const computed = new Map(matrices.map((matrix) => [matrix.name, matrix]));
  const hidden = new Set(matrices.flatMap(({ parts }) => parts));
  const names = [...base.names.filter((name) => !hidden.has(name)), ...computed.keys()];
  const known = new Set(names);
  const read = async (matrix: ComputedMatrix, first: number, count: number) => ({
    dtype: "f32" as const,
    shape: [count, matrix.shape[1]],
    data: await matrix.rows(first, count),
  });
  return {
    names,
    has: (name) => known.has(name),
    info(name) {
      const matrix = computed.get(name);
      return matrix ? { dtype: "f32", shape: matrix.shape } : base.info(name);
    },
    read(name) {
      const matrix = computed.get(name);
      return matrix ? read(matrix, 0, matrix.shape[0]) : base.read(name);
    },
    async readRows(name, first, count) {
      const matrix = computed.get(name);
      if (!matrix) return base.readRows(name, first, count);
      const whole = Number.isSafeInteger(first) && Number.isSafeInteger(count) && first >= 0 && count >= 0;
      if (!whole || first + count > matrix.shape[0])
        throw new InvalidArgumentError(
          `readRows: tensor ${quote(name)} [${matrix.shape}] has no rows ${first} to ${first + count}`,
        );
      return read(matrix, first, count);
    },
    lowBit: (name) => computed.get(name)?.lowBit ?? base.lowBit?.(name) ?? null,
    storedType: (name) => computed.get(name)?.stored ?? base.storedType?.(name) ?? base.info(name).dtype,
    ...(base.metadata && { metadata: base.metadata }),
    close: () => base.close(),
  };
}
