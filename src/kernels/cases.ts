/** Sample calls of kernel families for tests, benchmarks and printed code: their arrays are made from the declared sizes. */
import { type ArgumentsOf, type ArrayField, type Fields, plainValues } from "./declaration.ts";
import type { Family } from "./family.ts";

/** Sizes of a model that sample calls use. */
type ModelSizes = Readonly<Record<"hidden" | "intermediate" | "heads" | "kvHeads" | "headDim" | "vocabulary", number>>;

type ArrayNames<F extends Fields> = { [N in keyof F]: F[N] extends ArrayField ? N : never }[keyof F];
/** Sizes and numbers of a call, and arrays that are not to have generated values. */
type CaseOf<F extends Fields> = Omit<ArgumentsOf<F>, ArrayNames<F>> & Partial<ArgumentsOf<F>>;

/** Sample calls of a family. */
export interface Cases<F extends Fields = Fields> {
  readonly family: Family<F>;
  /** Quick calls, some with sizes that are not multiples of a vector. */
  readonly small: readonly CaseOf<F>[];
  /** The family's call in a model's step of this many tokens. */
  model(tokens: number, sizes: ModelSizes): CaseOf<F>;
}

/** Declares the cases of a family. */
/* @__NO_SIDE_EFFECTS__ */
export function casesOf<F extends Fields>(family: Family<F>, cases: Omit<Cases<F>, "family">): Cases<F> {
  return { family, ...cases };
}

/** Deterministic numbers from -1 to 1. */
export const floats = (length: number, seed = 1): Float32Array =>
  Float32Array.from({ length }, (_, i) => Math.sin(seed + i * i));

/** Arguments of a sample call: inputs with deterministic floats, and results of zeros. */
export function argumentsFor<F extends Fields>({ fields }: Family<F>, given: CaseOf<F>): ArgumentsOf<F> {
  const args: Record<string, unknown> = { ...given };
  // Sizes of given arrays, by name.
  const known = plainValues(Object.fromEntries(Object.entries(fields).filter(([name]) => name in args)), args);
  for (const [i, [name, field]] of Object.entries(fields).entries()) {
    if (field.kind !== "array" || name in args) continue;
    const sizes = (field.sizes ?? []).map((size) => (typeof size === "number" ? size : (known[size] as number)));
    const length = sizes.reduce((product, size) => product * size, 1);
    if (field.type === "i64") args[name] = new BigInt64Array(length);
    else if (field.type === "u8") args[name] = new Uint8Array(length);
    else args[name] = field.access === "write" ? new Float32Array(length) : floats(length, i + 1);
  }
  return args as ArgumentsOf<F>;
}

/** The result array of a call: the last array that is written. */
export function writtenBy<F extends Fields>({ fields }: Family<F>, args: ArgumentsOf<F>) {
  const written = Object.entries(fields).filter(([, field]) => field.kind === "array" && field.access === "write");
  return (args as Readonly<Record<string, unknown>>)[written.at(-1)![0]] as Float32Array | BigInt64Array | Uint8Array;
}
