/** Masks of the tokens that may come next in a constrained text. */
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

/** Compiled grammars cached for each tokenizer. */
const KEPT_MAX = 32;

/** Milliseconds that all masks of a text may take together, and that each mask may take in addition. */
const TEXT_MS = 5_000;
const MASK_MS = 100;

/** Follows one constrained text. */
export class ConstraintMatcher {
  readonly #texts: FollowedTexts;
  readonly #text: FollowedText;
  readonly #follower: GrammarFollower;
  readonly #bytes: readonly string[];
  readonly #endIds: ReadonlySet<number>;
  /** Masks by place: the tokens that may come next depend on the place alone. */
  readonly #masks = new WeakMap<Place, Uint32Array>();
  /** Milliseconds that masks have taken beyond their limits; starts at -TEXT_MS. */
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

  /**
   * The mask: a bit for each id that may come next. It may have a few ids too many, which `allows` refuses. UnsupportedError when
   * it takes too long.
   */
  async mask(): Promise<Uint32Array> {
    const { place } = this.#follower;
    const known = this.#masks.get(place);
    if (known) return known.slice();
    const { mask, milliseconds } = await this.#texts.mask(this.#text, MASK_MS - this.#overtime);
    this.#took(milliseconds - MASK_MS);
    this.#masks.set(place, mask);
    return mask.slice();
  }

  /** Whether a token may come next; an end token, whether the text may end. */
  allows(id: number): boolean {
    return this.#after(id) !== null;
  }

  /** Appends a token that the mask and `allows` permit. */
  accept(id: number): void {
    const after = this.#after(id);
    if (after === null) throw new InvalidArgumentError(`constraint: token ${id} cannot come next`);
    if (after === "end") this.#isEnded = true;
    else {
      this.#follower.place = after;
      this.#text.taken.push(id);
    }
  }

  /** Appends text that is already part of the answer; false where it cannot come. */
  acceptText(text: string): boolean {
    const after = this.#follower.after([...new TextEncoder().encode(text)]);
    if (!after) return false;
    this.#follower.place = after;
    this.#text.taken.push(text);
    return true;
  }

  /** Whether the text is complete and nothing can follow. */
  get isWhole(): boolean {
    const { canEnd, leaves } = this.#follower.place;
    return canEnd && leaves.length === 0;
  }

  /** Whether an end token has come, or, without end tokens, whether the text may end. */
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

/** Vocabulary that matchers work on. */
export interface Vocabulary {
  readonly tokenizer: Tokenizer;
  /** Number of logits. */
  readonly size: number;
  /** Ids of the tokens that end a text. */
  readonly endIds: readonly number[];
}

/** What matchers share, for each tokenizer, by vocabulary size and end tokens. */
const vocabularies = new WeakMap<Tokenizer, Map<string, { texts: FollowedTexts; bytes: readonly string[] }>>();

/**
 * Creates a matcher for a new text. What was made for the vocabulary and the constraint is reused.
 *
 * @throws InvalidArgumentError for an invalid constraint.
 * @throws UnsupportedError for a constraint that cannot be enforced token by token.
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

/**
 * Checks a constraint without a model. InvalidArgumentError for an invalid one, UnsupportedError for one that cannot be
 * enforced.
 */
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
