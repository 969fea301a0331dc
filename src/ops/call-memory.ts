/** Which tensors of a call may share memory: a result must not lie where the call still reads, or writes something else. */
import { ShapeError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";
import { type Arguments, describe } from "./call-arguments.ts";
import { qualifiedName } from "./schema.ts";

/** The overlaps of a call's tensors that an operator allows. */
export interface AllowedOverlaps {
  /** Arguments that the result may lie exactly over, since each value is read before its place is written. */
  readonly inPlace: readonly string[];
  /** Arguments that are read whole before the result is written, so that it may lie over them in any way. */
  readonly readFirst: readonly string[];
}

type NamedTensor = readonly [name: string, tensor: Tensor];

/**
 * ShapeError where a tensor that a call writes overlaps another in a way that the operator does not allow. An operator with
 * one out argument allows overlaps for that; a routine without any, for what it writes in place.
 */
export function checkOverlaps(args: Arguments<Tensor>, allowed: AllowedOverlaps): void {
  const { schema } = args;
  const tensors = [...args.allTensors()].filter(([, { data }]) => data.byteLength > 0);
  const hasOut = schema.args.some(({ isOut }) => isOut);
  const isMutable = new Set(schema.args.flatMap(({ name, mutable }) => (mutable ? [name] : [])));
  const fail = ([name, tensor]: NamedTensor, [otherName, other]: NamedTensor): never => {
    throw new ShapeError(
      `${qualifiedName(schema)}: writes argument ${name}, ${describe(tensor)}, over argument ${otherName}, ${describe(other)}: expected memory apart from each other`,
    );
  };
  const written = byPlace(tensors.filter(([name]) => isMutable.has(name)));
  for (const places of written.values())
    for (let i = 1; i < places.length; i++)
      if (endOf(places[i - 1]!) > startOf(places[i]!)) fail(places[i]!, places[i - 1]!);
  for (const other of tensors) {
    if (isMutable.has(other[0])) continue;
    const places = written.get(other[1].data.buffer) ?? [];
    for (let i = countBefore(places, endOf(other)) - 1; i >= 0 && endOf(places[i]!) > startOf(other); i--) {
      const isResult = hasOut ? schema.args.some((arg) => arg.name === places[i]![0] && arg.isOut) : true;
      if (!isResult || !isAllowed(places[i]!, other, allowed)) fail(places[i]!, other);
    }
  }
}

const startOf = ([, { data }]: NamedTensor) => data.byteOffset;
const endOf = ([, { data }]: NamedTensor) => data.byteOffset + data.byteLength;

/** Tensors by buffer, ordered by where they begin, since lists of calls in untrusted files can be long. */
function byPlace(tensors: readonly NamedTensor[]): ReadonlyMap<ArrayBufferLike, readonly NamedTensor[]> {
  const groups = new Map<ArrayBufferLike, NamedTensor[]>();
  for (const tensor of tensors) {
    const { buffer } = tensor[1].data;
    const group = groups.get(buffer);
    if (group) group.push(tensor);
    else groups.set(buffer, [tensor]);
  }
  for (const group of groups.values()) group.sort((a, b) => startOf(a) - startOf(b));
  return groups;
}

/** Number of tensors that begin before byte `end`. */
function countBefore(places: readonly NamedTensor[], end: number): number {
  let [low, high] = [0, places.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (startOf(places[middle]!) < end) low = middle + 1;
    else high = middle;
  }
  return low;
}

function isAllowed([, result]: NamedTensor, [name, input]: NamedTensor, { inPlace, readFirst }: AllowedOverlaps) {
  if (readFirst.includes(name)) return true;
  const { byteOffset, byteLength, length } = input.data;
  const isSame =
    byteOffset === result.data.byteOffset && byteLength === result.data.byteLength && length === result.data.length;
  return isSame && inPlace.includes(name);
}
