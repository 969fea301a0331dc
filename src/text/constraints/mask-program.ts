/**
 * The program that computes masks, one request after the other. It imports only types, since `npm run worker-texts` turns it
 * into the script that threads are started from.
 */
import type * as Xgrammar from "@mlc-ai/web-xgrammar";

/** A request for one followed text: its grammar, and what has come since the last request. */
export interface MaskRequest {
  readonly text: number;
  /** Grammar in the engine's EBNF. */
  readonly grammar: string;
  /** What has come: token ids, and strings. */
  readonly taken: readonly (number | string)[];
  /** Whether the reply has a mask. */
  readonly hasMask: boolean;
  /** Texts whose state may be freed. */
  readonly dropped: readonly number[];
}

/** A vocabulary, and settings of its engine. */
export interface MaskVocabulary {
  /** Bytes of each token, in GPT-2's byte alphabet. */
  readonly bytes: readonly string[];
  readonly size: number;
  readonly endIds: readonly number[];
  /** Number of compiled grammars to cache. */
  readonly keptGrammars: number;
}

/** Reply to a request; `milliseconds` is its processing time, without waiting in the queue. */
export type MaskReply =
  | { readonly kind: "done"; readonly mask: Uint32Array<ArrayBuffer> | null; readonly milliseconds: number }
  | { readonly kind: "failed"; readonly problem: string };

/** Loads the engine's package in Node. It claims to be an ES module but is a CommonJS script, so it is run as one. */
export function loadScript(require: (name: string) => unknown, file: string): typeof Xgrammar {
  const { Module } = require("node:module") as typeof import("node:module");
  const module = new Module(file) as NodeJS.Module & { _compile(text: string, file: string, format: string): void };
  module.filename = file;
  module._compile((require("node:fs") as typeof import("node:fs")).readFileSync(file, "utf8"), file, "commonjs");
  return module.exports as typeof Xgrammar;
}

/** Creates the function that answers requests. */
export async function startMasks(
  engine: typeof Xgrammar,
  { bytes, size, endIds, keptGrammars }: MaskVocabulary,
): Promise<(request: MaskRequest) => Promise<MaskReply>> {
  const info = await engine.TokenizerInfo.createTokenizerInfo([...bytes], "byte_level", false, size, [...endIds]);
  // The compiler's own cache is off: grammars are cached here, in bounded number.
  const compiler = await engine.GrammarCompiler.createGrammarCompiler(info, false);
  info.dispose();
  // Least recently used first.
  const grammars = new Map<string, Xgrammar.CompiledGrammar>();
  const texts = new Map<number, Xgrammar.GrammarMatcher>();
  const compiled = async (grammar: string) => {
    const found = grammars.get(grammar) ?? (await compiler.compileGrammar(grammar));
    grammars.delete(grammar);
    grammars.set(grammar, found);
    const [oldest] = grammars.keys();
    if (grammars.size > keptGrammars && oldest !== undefined) {
      grammars.get(oldest)!.dispose();
      grammars.delete(oldest);
    }
    return found;
  };
  const answer = async ({ text, grammar, taken, hasMask, dropped }: MaskRequest): Promise<MaskReply> => {
    const start = performance.now();
    for (const one of dropped) texts.get(one)?.dispose();
    for (const one of dropped) texts.delete(one);
    let matcher = texts.get(text);
    if (!matcher) {
      const made = await compiled(grammar);
      matcher = await engine.GrammarMatcher.createGrammarMatcher(made, undefined, endIds.length === 0);
      texts.set(text, matcher);
    }
    for (const one of taken) {
      const isTaken = typeof one === "number" ? matcher.acceptToken(one) : matcher._acceptString(one);
      if (!isTaken) return { kind: "failed", problem: `${JSON.stringify(one)} cannot come next` };
    }
    const bits = hasMask ? await matcher.getNextTokenBitmask() : null;
    // A copy, since the bits lie in the engine's memory.
    const mask = bits && new Uint32Array(bits);
    return { kind: "done", mask, milliseconds: performance.now() - start };
  };
  return (request) =>
    answer(request).catch((error): MaskReply => ({ kind: "failed", problem: String(error?.message ?? error) }));
}
