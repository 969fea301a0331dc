/** Arguments of AQLM's kernels, validated by the operators: `npm run families` writes packages/aqlm/native/arguments.h from them. */
import { type ArgumentsOf, boolean, type RecordField, unsized, whole } from "lowbit/extension";
import type { Floats } from "./form.ts";
import type { OpenCodes } from "./layout.ts";

/** Floats as stored, and whether they are halves. */
const floats: RecordField<Floats, never, never> = {
  kind: "record",
  fields: (name) => ({ [name]: unsized("any"), [`${name}AreHalf`]: boolean }),
  values: (value, name) => ({ [name]: value, [`${name}AreHalf`]: value instanceof Uint16Array }),
};

const codes: RecordField<OpenCodes, never, never> = {
  kind: "record",
  fields: (name) => ({ [name]: unsized("u8") }),
  values: ({ bytes }, name) => ({ [name]: bytes }),
};

/** y [m, n] = x [m, k] times AQLM weights [n, k] transposed, plus bias [n]. */
export const aqlmFields = {
  x: unsized("f32"),
  codes,
  /** [codebooks, 2^bits, outGroup, inGroup] */
  vectors: floats,
  /** [n / outGroup] */
  scales: floats,
  bias: { ...unsized("f32"), isOptional: true },
  y: unsized("f32", "write"),
  m: whole,
} as const;
export type AqlmArgs = ArgumentsOf<typeof aqlmFields>;
