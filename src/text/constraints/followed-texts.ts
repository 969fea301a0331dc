/** Texts that an engine follows, through its end and another one's beginning, within limits of time. */
import { UnsupportedError } from "../../errors.ts";
import { type Engine, startEngine } from "./engine.ts";
import type { MaskVocabulary } from "./mask-program.ts";

/** Milliseconds that a grammar may take to be compiled. */
const COMPILE_MS = 15_000;

/** What came in these is not late: the thread that waits may have had other work. */
const GRACE_MS = 50;

/** An engine that is not asked for so long is ended, with all that it keeps in memory. */
const IDLE_MS = 600_000;

/** Grammars that took too long, and are not tried again. */
const REFUSED_MAX = 32;

/** A text that is followed. What has come of it is known here, so that any engine can go on with it. */
export class FollowedText {
  readonly number: number;
  readonly grammar: string;
  /** Ids of tokens, and texts. */
  readonly taken: (number | string)[] = [];
  /** How much of it the engine knows, and which engine. */
  known = 0;
  engine: Engine | null = null;

  constructor(number: number, grammar: string) {
    this.number = number;
    this.grammar = grammar;
  }
}

/** The texts of one vocabulary. Requests take turns; one that takes too long ends the engine, and the others get another. */
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

  /** A new text under a grammar, once that is compiled. UnsupportedError for one that the engine does not take, or not in time. */
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

  /** Bits of the ids that may come next, and the milliseconds that they took. UnsupportedError after `withinMs`. */
  async mask(text: FollowedText, withinMs: number): Promise<{ mask: Uint32Array<ArrayBuffer>; milliseconds: number }> {
    const { mask, milliseconds } = await this.#ask(text, true, withinMs);
    return { mask: mask!, milliseconds };
  }

  /** Follows a text no more. */
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
      // One that has failed cannot be used any more.
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

/** What is said of forms that take too long. */
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
