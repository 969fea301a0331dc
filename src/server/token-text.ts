/** How tokens are written in lists of probabilities. */
import { Detokenizer } from "../text/detokenizer.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/**
 * The text that a token adds behind another, also of special tokens. Tokens that are no whole characters, of which several
 * would look the same, are written by their ids, as `token_id:123`.
 */
export function tokenText(tokenizer: Tokenizer, id: number, before: number | undefined): string {
  if (id >= tokenizer.vocabSize) return `token_id:${id}`;
  if (tokenizer.isSpecial(id)) return tokenizer.decode([id]);
  const detokenizer = new Detokenizer(tokenizer, { after: before === undefined ? [] : [before] });
  const text = detokenizer.push(id) + detokenizer.flush();
  return text.includes("\uFFFD") ? `token_id:${id}` : text;
}
