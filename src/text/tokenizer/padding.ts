/** The section `padding` of tokenizer.json. Follows padding.rs of tokenizers 0.23. */
import type { Field } from "./field.ts";
import type { Work } from "./work-limit.ts";

/** How a tokenizer.json pads short results. */
export interface Padding {
  /** Least number of ids; null for the length of the longest text of a batch, which here has one text. */
  readonly length: number | null;
  /** Lengths are rounded up to a multiple of this; null or 0 for none. */
  readonly multipleOf: number | null;
  /** The side that is padded. */
  readonly direction: "Left" | "Right";
  /** Id of the padding token. */
  readonly id: number;
  /** The padding token, as the file spells it. */
  readonly token: string;
}

export function readPadding(field: Field): Padding {
  const strategy = field.get("strategy");
  return {
    length: strategy.value === "BatchLongest" ? null : strategy.get("Fixed").count(0, Number.MAX_SAFE_INTEGER),
    multipleOf: field.optional("pad_to_multiple_of")?.count(0, Number.MAX_SAFE_INTEGER) ?? null,
    direction: field.get("direction").oneOf(["Left", "Right"]),
    id: field.get("pad_id").count(),
    token: field.get("pad_token").text(),
  };
}

/** Pads ids. */
export function pad(ids: number[], { length, multipleOf, direction, id }: Padding, work: Work): number[] {
  const wanted = length ?? ids.length;
  const padded = multipleOf ? Math.ceil(wanted / multipleOf) * multipleOf : wanted;
  const count = Math.max(padded - ids.length, 0);
  work.checkLength(count);
  work.add(count);
  const filling = new Array<number>(count).fill(id);
  return direction === "Right" ? ids.concat(filling) : filling.concat(ids);
}
