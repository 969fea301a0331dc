/** The text of a token in lists of log probabilities. */
import { Detokenizer } from "../text/detokenizer.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/**
 * The text that a token adds after the token `before`; special tokens are shown, too. A token that is only part of a
 * character is written by its id, as `token_id:123`, since several would look the same.
 */
export function tokenText(tokenizer: Tokenizer, id: number, before: number | undefined): string {
  if (id >= tokenizer.vocabSize) return `token_id:${id}`;
  if (tokenizer.isSpecial(id)) return tokenizer.decode([id]);
  const detokenizer = new Detokenizer(tokenizer, { after: before === undefined ? [] : [before] });
  const text = detokenizer.push(id) + detokenizer.flush();
  return text.includes("\uFFFD") ? `token_id:${id}` : text;
}
