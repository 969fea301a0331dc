/** Where drafts come from: the kinds, and what is refused. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { Decoder } from "./decoder.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** A model that can draft for another one: a `LanguageModel` is one. */
export interface DraftModel {
  /** Name of its file, for messages. */
  readonly name: string;
  /** Tokenizer with the tokens of the model that it drafts for. */
  readonly tokenizer: Tokenizer;
  /** A decoder with a sequence of its own. */
  createDecoder(scope?: PrefixScope): Decoder & { dispose(): Promise<void> };
}

/**
 * Where drafts come from beside a model of the caller's: `lookup` is what followed when the same tokens occurred before in the
 * prompt or the answer, `mtp` also what the model's own layer of multi-token prediction guesses where nothing likelier is found.
 */
export const drafts = ["lookup", "mtp", "off"] as const;

/**
 * Where drafts come from: as `drafts` names it, or a smaller model with the same tokens, which writes on where nothing that is
 * likelier to come can be looked up.
 */
export type Draft = (typeof drafts)[number] | DraftModel;

/** Tokenizers with those that were found to have the same tokens. */
const sameTokens = new WeakMap<Tokenizer, WeakSet<Tokenizer>>();

/** The model that is drafted for. */
export interface DraftedModel {
  /** Name of its file, for messages. */
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Whether it has a head that drafts. */
  readonly hasDraftHead: boolean;
}

/**
 * InvalidArgumentError for what gives no drafts to a model: unknown names, models whose ids are other tokens than its own, and
 * `mtp` for a model that has no such layer.
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
