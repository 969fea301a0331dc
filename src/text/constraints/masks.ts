/** Masks of the tokens that may come next under a constraint, for one text after the other. */
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher } from "@mlc-ai/web-xgrammar";
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { fromByteCharacters } from "../tokenizer/byte-alphabet.ts";
import type { Tokenizer } from "../tokenizer.ts";
import { type CallConstraint, callGrammar } from "./calls.ts";
import { compileConstraint } from "./compile.ts";
import { dropEngine, type Engine, loadEngine } from "./engine.ts";
import { GrammarFollower, type Place } from "./follower.ts";
import { type Grammar, writeGrammar } from "./grammar.ts";
import { tokenBytes } from "./token-bytes.ts";

/** Compiled grammars that are kept, for each tokenizer. */
const KEPT_MAX = 32;

/** Milliseconds that a text may take, and each of its masks beside these. */
const TEXT_MS = 5_000;
const MASK_MS = 100;

/** Follows one text under a constraint. */
export class ConstraintMatcher {
  readonly #matcher: GrammarMatcher;
  readonly #follower: GrammarFollower;
  readonly #bytes: readonly string[];
  readonly #endIds: ReadonlySet<number>;
  /** Masks by places: what may come in one place is the same whatever came before. */
  readonly #masks = new WeakMap<Place, Uint32Array>();
  /** Milliseconds that the text has taken beyond those that it may take. */
  #overtime = -TEXT_MS;
  #isEnded = false;
  #isDisposed = false;

  constructor(matcher: GrammarMatcher, follower: GrammarFollower, vocabulary: Vocabulary, bytes: readonly string[]) {
    this.#matcher = matcher;
    this.#follower = follower;
    this.#bytes = bytes;
    this.#endIds = new Set(vocabulary.endIds);
  }

  /** Bits of the ids that may come next; of few of them, `allows` says otherwise. UnsupportedError for what takes too long. */
  async mask(): Promise<Uint32Array> {
    const { place } = this.#follower;
    const known = this.#masks.get(place);
    if (known) return known.slice();
    const start = performance.now();
    const { buffer, byteOffset, length } = await this.#matcher.getNextTokenBitmask();
    this.#took(performance.now() - start - MASK_MS);
    const mask = new Uint32Array(buffer, byteOffset, length);
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
    const start = performance.now();
    const isAccepted = after !== null && this.#matcher.acceptToken(id);
    this.#took(performance.now() - start);
    if (!isAccepted) throw new InvalidArgumentError(`constraint: token ${id} cannot come next`);
    if (after === "end") this.#isEnded = true;
    else this.#follower.place = after;
  }

  /** Takes text that is part of the answer already; false where it cannot come. */
  acceptText(text: string): boolean {
    const after = this.#follower.after([...new TextEncoder().encode(text)]);
    if (!after || !this.#matcher._acceptString(text)) return false;
    this.#follower.place = after;
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
    if (!this.#isDisposed) this.#matcher.dispose();
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
    if (this.#overtime > 0)
      throw new UnsupportedError(
        "constraint: it takes too long to work out what may come next; expected a form that reads a text in fewer ways",
      );
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

class MatcherMaker {
  readonly #engine: Engine;
  readonly #compiler: GrammarCompiler;
  readonly #vocabulary: Vocabulary;
  readonly #bytes: readonly string[];
  /** By their text, the longest unused first. */
  readonly #compiled = new Map<string, CompiledGrammar>();

  private constructor(engine: Engine, compiler: GrammarCompiler, vocabulary: Vocabulary, bytes: readonly string[]) {
    this.#bytes = bytes;
    this.#engine = engine;
    this.#compiler = compiler;
    this.#vocabulary = vocabulary;
  }

  static async create(engine: Engine, vocabulary: Vocabulary): Promise<MatcherMaker> {
    const { tokenizer, size, endIds } = vocabulary;
    const bytes = tokenBytes(tokenizer, size);
    const info = await engine.TokenizerInfo.createTokenizerInfo(bytes, "byte_level", false, size, [...endIds]);
    // Grammars are kept here, where their number is bounded.
    const compiler = await engine.GrammarCompiler.createGrammarCompiler(info, false);
    info.dispose();
    return new MatcherMaker(engine, compiler, vocabulary, bytes);
  }

  async matcher(grammar: Grammar): Promise<ConstraintMatcher> {
    const written = writeGrammar(grammar);
    const compiled = this.#compiled.get(written) ?? (await this.#compile(written));
    this.#compiled.delete(written);
    this.#compiled.set(written, compiled);
    const [oldest] = this.#compiled.keys();
    if (this.#compiled.size > KEPT_MAX && oldest !== undefined) {
      this.#compiled.get(oldest)!.dispose();
      this.#compiled.delete(oldest);
    }
    const endsByItself = this.#vocabulary.endIds.length === 0;
    const matcher = await this.#engine.GrammarMatcher.createGrammarMatcher(compiled, undefined, endsByItself);
    return new ConstraintMatcher(matcher, new GrammarFollower(grammar), this.#vocabulary, this.#bytes);
  }

  async #compile(grammar: string): Promise<CompiledGrammar> {
    try {
      return await this.#compiler.compileGrammar(grammar);
    } catch (cause) {
      dropEngine();
      makers = new WeakMap();
      throw new UnsupportedError("constraint: the engine does not take this grammar", { cause });
    }
  }
}

let makers = new WeakMap<Tokenizer, Map<string, Promise<MatcherMaker>>>();

/**
 * A matcher for a new text under a constraint. What is made for a vocabulary and a constraint is kept for the next.
 *
 * @throws InvalidArgumentError for what is no constraint.
 * @throws UnsupportedError for what cannot be held to token by token.
 */
export async function createMatcher(
  constraint: Constraint | CallConstraint,
  vocabulary: Vocabulary,
): Promise<ConstraintMatcher> {
  const grammar = constraint?.kind === "calls" ? callGrammar(constraint) : compileConstraint(constraint);
  const maker = await makerOf(vocabulary);
  return maker.matcher(grammar);
}

/** InvalidArgumentError or UnsupportedError, without any work for a model, for what is no constraint or cannot be one. */
export function checkConstraint(constraint: Constraint): void {
  compileConstraint(constraint);
}

async function makerOf(vocabulary: Vocabulary): Promise<MatcherMaker> {
  const { tokenizer, size, endIds } = vocabulary;
  if (!(size > 0)) throw new InvalidArgumentError("constraint: expected a model with a vocabulary");
  const ofTokenizer = makers.get(tokenizer) ?? new Map<string, Promise<MatcherMaker>>();
  makers.set(tokenizer, ofTokenizer);
  const key = `${size} ${endIds.join()}`;
  const known = ofTokenizer.get(key);
  if (known) return known;
  const making = loadEngine().then((engine) => MatcherMaker.create(engine, vocabulary));
  ofTokenizer.set(key, making);
  making.catch(() => ofTokenizer.delete(key));
  return making;
}
