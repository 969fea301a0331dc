/** A program while it is changed, and what all changes need of it. */
import type { Constant, Instruction, Method, Value } from "../../src/program/program.ts";
import { SCRATCH_MEMORY } from "../../src/program/program.ts";
import { tensorBytes } from "../../src/program/verify.ts";
import { numbers } from "../support/damage.ts";
import type { Random } from "../support/random.ts";

export type Mutable<T> = T extends (infer E)[] | readonly (infer E)[]
  ? Mutable<E>[]
  : T extends object
    ? { -readonly [K in keyof T]: Mutable<T[K]> }
    : T;

export type MutableMethod = Mutable<Method>;
export type MutableTensor = Extract<Mutable<Value>, { kind: "tensor" }>;

/** A program while it is changed. */
export interface Draft {
  readonly method: MutableMethod;
  readonly methods: MutableMethod[];
  readonly constants: Constant[];
  readonly random: Random;
}

export const wild = [...numbers, 5, 31, 33, 4096, 2 ** 20, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 2 ** 63];
export const wildDoubles = [
  0,
  -1,
  1e-7,
  0.5,
  1e300,
  -1e300,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
];

export const tensorsOf = (method: MutableMethod) =>
  method.values.filter((value) => value.kind === "tensor") as MutableTensor[];

/** Values that instructions use, which matter more than others. */
export function anyValue(
  { method, random }: Draft,
  accepts: (value: Mutable<Value>) => boolean = () => true,
): number | null {
  const found = method.values.flatMap((value, index) => (accepts(value) ? [index] : []));
  return found.length > 0 ? random.pick(found) : null;
}

export function add({ method }: Draft, value: Mutable<Value>): number {
  method.values.push(value);
  return method.values.length - 1;
}

export function instructionAt({ method, random }: Draft): number {
  return random.integer(0, method.instructions.length);
}

/** Gives a tensor memory of its own at the end of its plan. */
export function place({ method }: Draft, tensor: MutableTensor): void {
  const memoryId = tensor.allocation?.memoryId ?? SCRATCH_MEMORY;
  while (method.memorySizes.length <= memoryId) method.memorySizes.push(0);
  const offset = Math.ceil(method.memorySizes[memoryId]! / 64) * 64;
  tensor.allocation = { memoryId, offset };
  method.memorySizes[memoryId] = offset + Math.min(tensorBytes(tensor), 2 ** 31);
}

export function kernel({ method }: Draft, full: string, args: number[]): Mutable<Instruction> {
  const [name, overload = ""] = full.split(".") as [string, string?];
  let operator = method.operators.findIndex((known) => known.name === name && known.overload === overload);
  if (operator < 0) operator = method.operators.push({ name, overload }) - 1;
  return { kind: "kernel", operator, args };
}
