/** Masks of the tokens that may come next under a constraint, for one text after the other. */
import { InvalidArgumentError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { fromByteCharacters } from "../tokenizer/byte-alphabet.ts";
import type { Tokenizer } from "../tokenizer.ts";
import { type CallConstraint, callGrammar } from "./calls.ts";
import { compileConstraint } from "./compile.ts";
import { type FollowedText, FollowedTexts, tooSlow } from "./followed-texts.ts";
import { GrammarFollower, type Place } from "./follower.ts";
import { writeGrammar } from "./grammar.ts";
import { tokenBytes } from "./token-bytes.ts";

/** Compiled grammars that are kept, for each tokenizer. */
const KEPT_MAX = 32;

/** Milliseconds that a text may take, and each of its masks beside these. */
const TEXT_MS = 5_000;
const MASK_MS = 100;

/** Follows one text under a constraint. */
export class ConstraintMatcher {
  readonly #texts: FollowedTexts;
  readonly #text: FollowedText;
  readonly #follower: GrammarFollower;
  readonly #bytes: readonly string[];
  readonly #endIds: ReadonlySet<number>;
  /** Masks by places: what may come in one place is the same whatever came before. */
  readonly #masks = new WeakMap<Place, Uint32Array>();
  /** Milliseconds that the text has taken beyond those that it may take. */
  #overtime = -TEXT_MS;
  #isEnded = false;
  #isDisposed = false;

  constructor(
    { texts, bytes, endIds }: { texts: FollowedTexts; bytes: readonly string[]; endIds: readonly number[] },
    text: FollowedText,
    follower: GrammarFollower,
  ) {
    this.#texts = texts;
    this.#text = text;
    this.#follower = follower;
    this.#bytes = bytes;
    this.#endIds = new Set(endIds);
  }

  /** Bits of the ids that may come next; of few of them, `allows` says otherwise. UnsupportedError for what takes too long. */
  async mask(): Promise<Uint32Array> {
    const { place } = this.#follower;
    const known = this.#masks.get(place);
    if (known) return known.slice();
    const { mask, milliseconds } = await this.#texts.mask(this.#text, MASK_MS - this.#overtime);
    this.#took(milliseconds - MASK_MS);
    this.#masks.set(place, mask);
    return mask.slice();
  }

  /** Whether a token may come next: one that ends the text where that may end. */
  allows(id: number): boolean {
    return this.#after(id) !== null;
  }

  /** Takes a token that the mask and `allows` let come. */
  accept(id: number): void {
    const after = this.#after(id);
    if (after === null) throw new InvalidArgumentError(`constraint: token ${id} cannot come next`);
    if (after === "end") this.#isEnded = true;
    else {
      this.#follower.place = after;
      this.#text.taken.push(id);
    }
  }

  /** Takes text that is part of the answer already; false where it cannot come. */
  acceptText(text: string): boolean {
    const after = this.#follower.after([...new TextEncoder().encode(text)]);
    if (!after) return false;
    this.#follower.place = after;
    this.#text.taken.push(text);
    return true;
  }

  /** Whether nothing can follow. */
  get isWhole(): boolean {
    const { canEnd, leaves } = this.#follower.place;
    return canEnd && leaves.length === 0;
  }

  /** Whether the text has ended, or where no token can say so, is whole. */
  get isEnded(): boolean {
    return this.#isEnded || (this.#endIds.size === 0 && this.#follower.place.canEnd);
  }

  dispose(): void {
    if (!this.#isDisposed) this.#texts.end(this.#text);
    this.#isDisposed = true;
  }

  #after(id: number): Place | "end" | null {
    if (this.#endIds.has(id)) return this.#follower.place.canEnd ? "end" : null;
    const bytes = fromByteCharacters(this.#bytes[id] ?? "") ?? [];
    if (bytes.length === 0) return null;
    const start = performance.now();
    const after = this.#follower.after(bytes);
    this.#took(performance.now() - start);
    return after;
  }

  #took(milliseconds: number): void {
    this.#overtime += milliseconds;
    if (this.#overtime > 0) throw tooSlow();
  }
}

/** What matchers of one model are made with. */
export interface Vocabulary {
  readonly tokenizer: Tokenizer;
  /** Number of logits. */
  readonly size: number;
  /** Ids that end a text. */
  readonly endIds: readonly number[];
}

/** What matchers of a vocabulary share, by its size and ends, for each tokenizer. */
const vocabularies = new WeakMap<Tokenizer, Map<string, { texts: FollowedTexts; bytes: readonly string[] }>>();

/**
 * A matcher for a new text under a constraint. What is made for a vocabulary and a constraint is kept for the next.
 *
 * @throws InvalidArgumentError for what is no constraint.
 * @throws UnsupportedError for what cannot be enforced token by token.
 */
export async function createMatcher(
  constraint: Constraint | CallConstraint,
  vocabulary: Vocabulary,
): Promise<ConstraintMatcher> {
  const grammar = constraint?.kind === "calls" ? callGrammar(constraint) : compileConstraint(constraint);
  const { texts, bytes } = sharedOf(vocabulary);
  const text = await texts.begin(writeGrammar(grammar));
  return new ConstraintMatcher({ texts, bytes, endIds: vocabulary.endIds }, text, new GrammarFollower(grammar));
}

/** InvalidArgumentError or UnsupportedError, without any work for a model, for what is no constraint or cannot be one. */
export function checkConstraint(constraint: Constraint): void {
  compileConstraint(constraint);
}

function sharedOf({ tokenizer, size, endIds }: Vocabulary) {
  if (!(size > 0)) throw new InvalidArgumentError("constraint: expected a model with a vocabulary");
  const ofTokenizer = vocabularies.get(tokenizer) ?? new Map();
  vocabularies.set(tokenizer, ofTokenizer);
  const key = `${size} ${endIds.join()}`;
  const known = ofTokenizer.get(key);
  if (known) return known;
  const bytes = tokenBytes(tokenizer, size);
  const shared = { texts: new FollowedTexts({ bytes, size, endIds, keptGrammars: KEPT_MAX }), bytes };
  ofTokenizer.set(key, shared);
  return shared;
}
