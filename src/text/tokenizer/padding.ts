/** The section `padding` of tokenizer.json: what fills short results. Follows padding.rs of tokenizers 0.23. */
import type { Field } from "./field.ts";
import type { Work } from "./work-limit.ts";

/** How a tokenizer.json fills results that are short. */
export interface Padding {
  /** The least ids of a result; null for the length of the longest of a batch, which here has one text. */
  readonly length: number | null;
  /** The number that lengths are rounded up to a multiple of; null or 0 for none. */
  readonly multipleOf: number | null;
  /** The side on which ids are put. */
  readonly direction: "Left" | "Right";
  /** The id that is put there. */
  readonly id: number;
  /** The token of that id, as the file spells it. */
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

/** Ids with those of the padding. */
export function pad(ids: number[], { length, multipleOf, direction, id }: Padding, work: Work): number[] {
  const wanted = length ?? ids.length;
  const padded = multipleOf ? Math.ceil(wanted / multipleOf) * multipleOf : wanted;
  const count = Math.max(padded - ids.length, 0);
  work.checkLength(count);
  work.add(count);
  const filling = new Array<number>(count).fill(id);
  return direction === "Right" ? ids.concat(filling) : filling.concat(ids);
}
