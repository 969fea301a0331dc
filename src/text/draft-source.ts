/** Sources of drafts: their names, and checks of what a caller gives. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { Decoder } from "./decoder.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** A model that drafts for another one, such as a `LanguageModel`. */
export interface DraftModel {
  /** File name, for messages. */
  readonly name: string;
  /** Tokenizer; it must have the same tokens as that of the model that it drafts for. */
  readonly tokenizer: Tokenizer;
  /** Creates a decoder with a sequence of its own. */
  createDecoder(scope?: PrefixScope): Decoder & { dispose(): Promise<void> };
}

/**
 * Sources of drafts other than a draft model: `lookup` continues as an earlier occurrence of the same tokens in the prompt or
 * answer did; `mtp` also uses the model's own multi-token prediction layer where lookup finds nothing more probable.
 */
export const drafts = ["lookup", "mtp", "off"] as const;

/**
 * Source of drafts: a name of `drafts`, or a smaller model with the same tokens, which drafts where lookup finds nothing more
 * probable.
 */
export type Draft = (typeof drafts)[number] | DraftModel;

/** Pairs of tokenizers that were found to have the same tokens. */
const sameTokens = new WeakMap<Tokenizer, WeakSet<Tokenizer>>();

/** The target model that drafts are made for. */
export interface DraftedModel {
  /** File name, for messages. */
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Whether the model has a draft head (multi-token prediction). */
  readonly hasDraftHead: boolean;
}

/**
 * Checks a source of drafts. InvalidArgumentError for an unknown name, a draft model whose tokens differ from the target's, and
 * `mtp` for a model without such a layer.
 */
export function checkDraft(draft: Draft, { name, tokenizer, hasDraftHead }: DraftedModel): void {
  if (isModel(draft)) checkSameTokens(draft, tokenizer, name);
  else if (draft === "mtp" && !hasDraftHead)
    throw new InvalidArgumentError(
      `draft: expected a program with a layer of multi-token prediction for mtp, made from a checkpoint with tensors mtp.* or nextn, but ${name} has none`,
    );
  else if (!drafts.includes(draft))
    throw new InvalidArgumentError(
      `draft: expected one of ${drafts.join(", ")}, or a loaded model, but found ${shown(draft)}`,
    );
}

function isModel(draft: Draft): draft is DraftModel {
  return typeof draft === "object" && draft !== null && "createDecoder" in draft && "tokenizer" in draft;
}

function checkSameTokens(draft: DraftModel, tokenizer: Tokenizer, name: string): void {
  const refuse = (found: string) => {
    throw new InvalidArgumentError(`draft: expected a model with the tokens of ${name} but ${draft.name} has ${found}`);
  };
  const known = sameTokens.get(tokenizer) ?? new WeakSet();
  sameTokens.set(tokenizer, known);
  if (known.has(draft.tokenizer)) return;
  const { vocabSize } = tokenizer;
  if (draft.tokenizer.vocabSize !== vocabSize) refuse(`${draft.tokenizer.vocabSize} tokens, not ${vocabSize}`);
  for (let id = 0; id < vocabSize; id++) {
    const [own, other] = [tokenizer.idToToken(id), draft.tokenizer.idToToken(id)];
    if (own !== other) refuse(`${shown(other)} as token ${id}, not ${shown(own)}`);
  }
  known.add(draft.tokenizer);
}
