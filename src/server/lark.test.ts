/** Grammars of Lark: which texts they have, by what the engine allows; expected values by Lark's own parser (Earley, dynamic lexer). */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseEbnf } from "../text/constraints/ebnf.ts";
import { GrammarFollower } from "../text/constraints/follower.ts";
import { checkGrammar } from "../text/constraints/grammar.ts";
import { larkToEbnf } from "./lark.ts";

interface Case {
  readonly name: string;
  readonly grammar: string;
  readonly texts: Readonly<Record<string, boolean>>;
}

const CASES: readonly Case[] = JSON.parse(readFileSync(new URL("lark.json.golden", import.meta.url), "utf8"));

function has(grammar: string, text: string): boolean {
  const rules = parseEbnf(larkToEbnf(grammar));
  checkGrammar(rules, "grammar");
  return new GrammarFollower(rules).after([...new TextEncoder().encode(text)])?.canEnd ?? false;
}

describe("grammars", () => {
  it.each(CASES)("$name has the texts that Lark parses", ({ grammar, texts }) => {
    const found = Object.fromEntries(Object.keys(texts).map((text) => [text, has(grammar, text)]));
    expect(found).toEqual(texts);
  });

  it.each([
    ["", "expected a rule start"],
    ['a: "x"', "expected a rule start"],
    ['start: "x" b', "rule b is not defined"],
    ['start: "x', "line 1: expected a text that ends in its line"],
    ['start: ("x"', "line 1: expected )"],
    ['start: "x"\nstart: "y"', "line 2: expected one definition of start"],
    ['start: start "x"', "can begin otherwise"],
    ['start: a\na: b "x" | "y"\nb: a', "begins with itself"],
    ["start: /(/", "lark: line 1"],
    ["start: /a(?!b)/", "look-ahead"],
    ["start: /a/m", "line 1: the flag m"],
    ['start: "x"\n%declare A', "line 2: %declare"],
    ['start: "x"\n%import python.NAME', "other than from common"],
    ["start: WAS\n%import common.WAS", "which has no WAS"],
    ['start: _sep{"x", ","}\n_sep{x, y}: x (y x)*', "line 1: rules with parameters"],
    ['start: "x"~9..2', "rising repetitions"],
    ['start: "z".."a"', "a rising range"],
  ])("that are none, or cannot be enforced, are refused: %s", (grammar, message) => {
    expect(() => has(grammar, "")).toThrow(message);
  });
});
