/** What programs take that read several whole texts in a step: their tokens, one text after the other. */
import type { Tensor } from "../tensor.ts";

/** Tokens of a text, and how many of them are of the first of a pair. */
export interface TokenText {
  /** Token ids, with those that the tokenizer puts around texts. */
  readonly ids: readonly number[];
  /** Tokens from this place on are of kind 1. */
  readonly secondFrom: number;
}

/** Tokens and positions [1, T], offsets [texts + 1] and, where the network knows kinds of tokens, those [1, T]. */
export function textInputs(
  texts: readonly TokenText[],
  { firstPosition, hasTypes }: { readonly firstPosition: number; readonly hasTypes: boolean },
): Tensor[] {
  const rows = texts.reduce((sum, { ids }) => sum + ids.length, 0);
  const row = () => new BigInt64Array(rows);
  const [tokens, positions, types] = [row(), row(), row()];
  const offsets = new BigInt64Array(texts.length + 1);
  let at = 0;
  for (const [i, { ids, secondFrom }] of texts.entries()) {
    for (const [place, id] of ids.entries()) {
      tokens[at] = BigInt(id);
      positions[at] = BigInt(place + firstPosition);
      types[at] = place >= secondFrom ? 1n : 0n;
      at++;
    }
    offsets[i + 1] = BigInt(at);
  }
  const tensor = (data: BigInt64Array, ...shape: number[]): Tensor => ({ dtype: "i64", shape, data });
  const inputs = [tensor(tokens, 1, rows), tensor(positions, 1, rows), tensor(offsets, offsets.length)];
  return hasTypes ? [...inputs, tensor(types, 1, rows)] : inputs;
}
