/** Which tensors of a call may share memory: results may not lie where the call still reads, or writes something else. */
import { ShapeError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";
import { type Arguments, describe } from "./call-arguments.ts";
import { qualifiedName } from "./schema.ts";

/** What an operator allows beyond tensors apart from each other. */
export interface AllowedOverlaps {
  /** Arguments that the result may lie exactly over: each value is read before its place is written. */
  readonly inPlace: readonly string[];
  /** Arguments that are read whole before the result is written, which may lie over them in any way. */
  readonly readFirst: readonly string[];
}

type NamedTensor = readonly [name: string, tensor: Tensor];

/**
 * ShapeError where a tensor that a call writes overlaps another tensor of the call in a way that the operator does not
 * allow. An operator with one out argument allows overlaps for that; a routine without any, for what it writes in place.
 */
export function checkOverlaps(args: Arguments<Tensor>, allowed: AllowedOverlaps): void {
  const { schema } = args;
  const tensors = [...args.allTensors()].filter(([, { data }]) => data.byteLength > 0);
  const hasOut = schema.args.some(({ isOut }) => isOut);
  const written = tensors.filter(([name]) => schema.args.some((arg) => arg.name === name && arg.mutable));
  for (const one of written)
    for (const other of tensors) {
      if (one === other || !overlaps(one[1], other[1])) continue;
      const isResult = hasOut ? schema.args.some((arg) => arg.name === one[0] && arg.isOut) : true;
      if (isResult && !written.includes(other) && isAllowed(one, other, allowed)) continue;
      throw new ShapeError(
        `${qualifiedName(schema)}: writes argument ${one[0]}, ${describe(one[1])}, over argument ${other[0]}, ${describe(other[1])}: expected memory apart from each other`,
      );
    }
}

function isAllowed([, result]: NamedTensor, [name, input]: NamedTensor, { inPlace, readFirst }: AllowedOverlaps) {
  if (readFirst.includes(name)) return true;
  const { byteOffset, byteLength, length } = input.data;
  const isSame =
    byteOffset === result.data.byteOffset && byteLength === result.data.byteLength && length === result.data.length;
  return isSame && inPlace.includes(name);
}

function overlaps({ data: a }: Tensor, { data: b }: Tensor): boolean {
  return (
    a.buffer === b.buffer && a.byteOffset < b.byteOffset + b.byteLength && b.byteOffset < a.byteOffset + a.byteLength
  );
}
