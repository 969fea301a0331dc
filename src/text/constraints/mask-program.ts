/**
 * What makes masks, one request after the other. This file imports nothing but types, as `npm run worker-texts` makes it the
 * text that threads are started from.
 */
import type * as Xgrammar from "@mlc-ai/web-xgrammar";

/** One text that is followed, by number: what constrains it, and what has come of it since the last request. */
export interface MaskRequest {
  readonly text: number;
  /** In the engine's form. */
  readonly grammar: string;
  /** Ids of tokens, and texts. */
  readonly taken: readonly (number | string)[];
  /** Whether the ids that may come next are wanted. */
  readonly hasMask: boolean;
  /** Texts that are followed no more. */
  readonly dropped: readonly number[];
}

/** What a vocabulary needs before requests. */
export interface MaskVocabulary {
  /** Bytes of each token, as characters of the alphabet of bytes. */
  readonly bytes: readonly string[];
  readonly size: number;
  readonly endIds: readonly number[];
  /** Grammars that stay compiled. */
  readonly keptGrammars: number;
}

/** `milliseconds`: what the request took, without waiting for its turn. */
export type MaskReply =
  | { readonly kind: "done"; readonly mask: Uint32Array<ArrayBuffer> | null; readonly milliseconds: number }
  | { readonly kind: "failed"; readonly problem: string };

/** The engine's package in Node. It calls itself a module and is a script of the older kind, so it is run as one. */
export function loadScript(require: (name: string) => unknown, file: string): typeof Xgrammar {
  const { Module } = require("node:module") as typeof import("node:module");
  const module = new Module(file) as NodeJS.Module & { _compile(text: string, file: string, format: string): void };
  module.filename = file;
  module._compile((require("node:fs") as typeof import("node:fs")).readFileSync(file, "utf8"), file, "commonjs");
  return module.exports as typeof Xgrammar;
}

/** Gives what answers requests. */
export async function startMasks(
  engine: typeof Xgrammar,
  { bytes, size, endIds, keptGrammars }: MaskVocabulary,
): Promise<(request: MaskRequest) => Promise<MaskReply>> {
  const info = await engine.TokenizerInfo.createTokenizerInfo([...bytes], "byte_level", false, size, [...endIds]);
  // Grammars are kept here, where their number is bounded.
  const compiler = await engine.GrammarCompiler.createGrammarCompiler(info, false);
  info.dispose();
  // The longest unused first.
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
    // A copy, since the bits are a part of the engine's memory.
    const mask = bits && new Uint32Array(bits);
    return { kind: "done", mask, milliseconds: performance.now() - start };
  };
  return (request) =>
    answer(request).catch((error): MaskReply => ({ kind: "failed", problem: String(error?.message ?? error) }));
}
