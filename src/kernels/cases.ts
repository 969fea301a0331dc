/** Calls of families with given sizes, for tests, benchmarks and printed code: their arrays are made from the declaration. */
import type { ArgumentsOf, ArrayField, Fields } from "./declaration.ts";
import type { Family } from "./family.ts";

/** Sizes of Llama-3.2-1B, which families are measured with. */
export const llama = { hidden: 2048, intermediate: 8192, heads: 32, kvHeads: 8, headDim: 64, vocabulary: 32_000 };

type ArrayNames<F extends Fields> = { [N in keyof F]: F[N] extends ArrayField ? N : never }[keyof F];
/** Sizes and numbers of a call, and those of its arrays that are not left to chance. */
type CaseOf<F extends Fields> = Omit<ArgumentsOf<F>, ArrayNames<F>> & Partial<ArgumentsOf<F>>;

/** The calls of a family that it is tried on. */
export interface Cases<F extends Fields = Fields> {
  readonly family: Family<F>;
  /** Calls that take no time, also such that no vectors fit. */
  readonly small: readonly CaseOf<F>[];
  /** The call of a model's step of so many tokens. */
  model(tokens: number, sizes: typeof llama): CaseOf<F>;
}

/** Declares the cases of a family. */
/* @__NO_SIDE_EFFECTS__ */
export function casesOf<F extends Fields>(family: Family<F>, cases: Omit<Cases<F>, "family">): Cases<F> {
  return { family, ...cases };
}

/** Numbers from -1 to 1. */
export const floats = (length: number, seed = 1): Float32Array =>
  Float32Array.from({ length }, (_, i) => Math.sin(seed + i * i));

/** The arguments of a case: arrays of floats that are the same each time, and results of zeros. */
export function argumentsFor<F extends Fields>({ fields }: Family<F>, given: CaseOf<F>): ArgumentsOf<F> {
  const known = given as Readonly<Record<string, unknown>>;
  const args: Record<string, unknown> = { ...known };
  for (const [i, [name, field]] of Object.entries(fields).entries()) {
    if (field.kind !== "array" || name in known) continue;
    const sizes = field.sizes.map((size) => (typeof size === "number" ? size : (known[size] as number)));
    const length = sizes.reduce((product, size) => product * size, 1);
    if (field.type === "i64") args[name] = new BigInt64Array(length);
    else if (field.type === "u8") args[name] = new Uint8Array(length);
    else args[name] = field.access === "write" ? new Float32Array(length) : floats(length, i + 1);
  }
  return args as ArgumentsOf<F>;
}

/** The array of a call that gets its results: the last one that is written. */
export function writtenBy<F extends Fields>({ fields }: Family<F>, args: ArgumentsOf<F>) {
  const written = Object.entries(fields).filter(([, field]) => field.kind === "array" && field.access === "write");
  return (args as Readonly<Record<string, unknown>>)[written.at(-1)![0]] as Float32Array | BigInt64Array | Uint8Array;
}

/** Bytes that a call reads and writes. */
export function bytesOfCall<F extends Fields>({ fields }: Family<F>, args: ArgumentsOf<F>): number {
  const values = args as Readonly<Record<string, { readonly byteLength?: number } | number | null>>;
  return Object.entries(fields).reduce((sum, [name, field]) => {
    if (field.kind !== "array" || values[name] === null) return sum;
    return sum + (field.access === "change" ? 2 : 1) * (values[name] as Float32Array).byteLength;
  }, 0);
}
