/** Inputs of encoders: the tokens of several packed texts, one after the other. */
import type { Tensor } from "../tensor.ts";

/** Tokens of a text, or of a pair of texts. */
export interface TokenSequence {
  /** Token ids, with the special tokens that the tokenizer adds. */
  readonly ids: readonly number[];
  /** Index of the first token of type 1, the second text of a pair. */
  readonly secondFrom: number;
}

/** Tokens and positions [1, T], offsets [texts + 1] and, where the network has token types, types [1, T]. */
export function encoderInputs(
  texts: readonly TokenSequence[],
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
