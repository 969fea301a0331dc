/**
 * The section `truncation` of tokenizer.json, which limits the ids of a text or pair. Follows truncation.rs of tokenizers 0.23.
 */
import { InvalidArgumentError } from "../../errors.ts";
import type { Field } from "./field.ts";

/** How a tokenizer.json truncates the ids of a text, or of a pair. */
export interface Truncation {
  /** Most ids of the result, special tokens around the text included. */
  readonly maxLength: number;
  /** Which text of a pair loses ids: the longer one, or always the first or the second. */
  readonly strategy: "LongestFirst" | "OnlyFirst" | "OnlySecond";
  /** The side that is cut off. */
  readonly direction: "Left" | "Right";
  /**
   * Number of ids by which successive parts of a long text overlap. Only the first part is returned here, so it is checked and
   * unused.
   */
  readonly stride: number;
}

/** Lengths that do not fit Rust's usize are refused, as Rust does. */
const LENGTH_LIMIT = 2 ** 64;

export function readTruncation(field: Field): Truncation {
  return {
    maxLength: field.get("max_length").count(0, LENGTH_LIMIT),
    strategy: field.get("strategy").oneOf(["LongestFirst", "OnlyFirst", "OnlySecond"]),
    direction: field.optional("direction")?.oneOf(["Left", "Right"]) ?? "Right",
    stride: field.get("stride").count(0, LENGTH_LIMIT),
  };
}

/**
 * Truncates lists of ids, of one text or two, to `room` ids together, which is what special tokens leave of `maxLength`.
 *
 * @throws InvalidArgumentError when the texts cannot be truncated as the file asks.
 */
export function truncate(lists: readonly number[][], truncation: Truncation, room: number, file: string): number[][] {
  const lengths = shortenedLengths(
    lists.map((ids) => ids.length),
    truncation.strategy,
    room,
    file,
  );
  return lists.map((ids, i) => shorten(ids, lengths[i]!, truncation, file));
}

/** Number of ids kept of each list. */
function shortenedLengths(
  [first, second]: readonly number[],
  strategy: Truncation["strategy"],
  room: number,
  file: string,
): number[] {
  const excess = first! + (second ?? 0) - room;
  const kept = second === undefined ? [first!] : [first!, second];
  if (room === 0) return kept.map(() => 0);
  if (excess <= 0) return kept;
  if (strategy === "LongestFirst") return second === undefined ? [room] : sharedLengths(first!, second, room);
  const place = strategy === "OnlyFirst" ? 0 : 1;
  const target = kept[place];
  if (target === undefined || target <= excess)
    throw new InvalidArgumentError(
      `${file}: truncation: ${strategy} expected ${place === 0 ? "a first" : "a second"} text of more than ` +
        `${excess} tokens to shorten but found ${target === undefined ? "none" : `one of ${target}`}`,
    );
  kept[place] = target - excess;
  return kept;
}

/** Number of ids kept of each of two lists: the longer one is cut, or, if that is not enough, both to half of the room. */
function sharedLengths(first: number, second: number, room: number): number[] {
  let shorter = Math.min(first, second);
  let longer = shorter > room ? shorter : Math.max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = Math.floor(room / 2);
    longer = shorter + (room % 2);
  }
  return first > second ? [longer, shorter] : [shorter, longer];
}

function shorten(ids: number[], length: number, { direction, stride }: Truncation, file: string): number[] {
  if (length >= ids.length) return ids;
  if (length > 0 && stride >= length)
    throw new InvalidArgumentError(
      `${file}: truncation: expected a stride below the ${length} tokens that are left for the text but found ${stride}`,
    );
  return direction === "Right" ? ids.slice(0, length) : ids.slice(ids.length - length);
}
