/** Texts that a mask engine follows, within time limits; when an engine ends, the next one takes them over. */
import { UnsupportedError } from "../../errors.ts";
import { type Engine, startEngine } from "./engine.ts";
import type { MaskVocabulary } from "./mask-program.ts";

/** Milliseconds within which a grammar must compile. */
const COMPILE_MS = 15_000;

/** Milliseconds of tolerance after a time limit: the waiting thread may have been busy when the reply came. */
const GRACE_MS = 50;

/** Milliseconds without requests after which an engine is ended, to free its memory. */
const IDLE_MS = 600_000;

/** Most remembered grammars that took too long and are not tried again. */
const REFUSED_MAX = 32;

/** A text that is followed. Its tokens are recorded here, so that any engine can replay them. */
export class FollowedText {
  readonly number: number;
  readonly grammar: string;
  /** What has come: token ids, and strings. */
  readonly taken: (number | string)[] = [];
  /** How many entries of `taken` the engine has been sent, and which engine. */
  known = 0;
  engine: Engine | null = null;

  constructor(number: number, grammar: string) {
    this.number = number;
    this.grammar = grammar;
  }
}

/**
 * The followed texts of one vocabulary. Requests take turns; one that takes too long ends the engine, and a new one is started
 * for the others.
 */
export class FollowedTexts {
  readonly #vocabulary: MaskVocabulary;
  readonly #compileMs: number;
  #engine: Engine | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  #count = 0;
  #dropped: number[] = [];
  readonly #refused = new Set<string>();
  #idle: ReturnType<typeof setTimeout> | undefined;

  constructor(vocabulary: MaskVocabulary, { compileMs = COMPILE_MS } = {}) {
    this.#vocabulary = vocabulary;
    this.#compileMs = compileMs;
  }

  /**
   * Begins a text under a grammar, once it is compiled. UnsupportedError for one that the engine refuses or compiles too
   * slowly.
   */
  async begin(grammar: string): Promise<FollowedText> {
    if (this.#refused.has(grammar)) throw tooSlow();
    const text = new FollowedText(++this.#count, grammar);
    try {
      await this.#ask(text, false, 0);
    } catch (error) {
      if (error instanceof LateError) this.#refuse(grammar);
      throw error;
    }
    return text;
  }

  /** The token mask (a bit per id) and the milliseconds it took. UnsupportedError after `withinMs`. */
  async mask(text: FollowedText, withinMs: number): Promise<{ mask: Uint32Array<ArrayBuffer>; milliseconds: number }> {
    const { mask, milliseconds } = await this.#ask(text, true, withinMs);
    return { mask: mask!, milliseconds };
  }

  /** Stops following a text. */
  end({ number }: FollowedText): void {
    this.#dropped.push(number);
  }

  #ask(text: FollowedText, hasMask: boolean, withinMs: number) {
    const asked = this.#turn.then(() => this.#now(text, hasMask, withinMs));
    this.#turn = asked.catch(() => {});
    return asked;
  }

  async #now(text: FollowedText, hasMask: boolean, withinMs: number) {
    clearTimeout(this.#idle);
    if (this.#engine?.hasEnded) this.#end();
    this.#engine ??= await startEngine(this.#vocabulary);
    const engine = this.#engine;
    const isNew = text.engine !== engine;
    if (isNew) text.known = 0;
    text.engine = engine;
    const dropped = this.#dropped;
    this.#dropped = [];
    const { number, grammar, taken } = text;
    const request = { text: number, grammar, taken: taken.slice(text.known), hasMask, dropped };
    text.known = taken.length;
    try {
      const reply = await within((isNew ? this.#compileMs : 0) + withinMs, engine.ask(request));
      if (reply.kind === "failed")
        throw new UnsupportedError("constraint: the engine does not take this grammar", {
          cause: new UnsupportedError(reply.problem),
        });
      return reply;
    } catch (error) {
      // An engine that has failed cannot be used again.
      this.#end();
      throw error;
    } finally {
      this.#idle = setTimeout(() => this.#end(), IDLE_MS);
      (this.#idle as { unref?(): void }).unref?.();
    }
  }

  #end(): void {
    this.#engine?.end();
    this.#engine = null;
    this.#dropped = [];
  }

  #refuse(grammar: string): void {
    this.#refused.add(grammar);
    const [oldest] = this.#refused;
    if (this.#refused.size > REFUSED_MAX) this.#refused.delete(oldest!);
  }
}

class LateError extends UnsupportedError {}

/** The error for constraints that take too long. */
export function tooSlow(): UnsupportedError {
  return new LateError(
    "constraint: it takes too long to work out what may come next; expected a form that reads a text in fewer ways",
  );
}

async function within<R>(milliseconds: number, work: Promise<R>): Promise<R> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      timer = setTimeout(() => reject(tooSlow()), GRACE_MS);
    }, milliseconds);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
