/** Prompts for texts between others, by the tokens of several families. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { fillInMiddle } from "./fill-in-middle.ts";
import { Tokenizer } from "./tokenizer.ts";

const golden = JSON.parse(readFileSync(new URL("byte-level-tokenizer.json.golden", import.meta.url), "utf8"));

/** A tokenizer with tokens of its own. */
function withTokens(tokens: readonly string[], config: object = {}): Tokenizer {
  const first = Math.max(...golden.added_tokens.map(({ id }: { id: number }) => id)) + 1;
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  const added = tokens.map((content, i) => ({ id: first + i, content, special: true, ...flags }));
  return new Tokenizer({ ...golden, added_tokens: [...golden.added_tokens, ...added] }, config);
}

describe("a prompt for the text between two others", () => {
  // As the cards of Qwen2.5-Coder, StarCoder2, DeepSeek-Coder, Code Llama and Codestral write it.
  it.each<[string, string[], string]>([
    [
      "Qwen",
      ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
      "<|fim_prefix|>def f(<|fim_suffix|>  return 1<|fim_middle|>",
    ],
    [
      "StarCoder",
      ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
      "<fim_prefix>def f(<fim_suffix>  return 1<fim_middle>",
    ],
    [
      "DeepSeek",
      ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
      "<｜fim▁begin｜>def f(<｜fim▁hole｜>  return 1<｜fim▁end｜>",
    ],
    ["Code Llama", ["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"], "▁<PRE>def f(▁<SUF>  return 1▁<MID>"],
    ["Codestral", ["[SUFFIX]", "[PREFIX]"], "[SUFFIX]  return 1[PREFIX]def f("],
  ])("is that of %s", (_name, tokens, expected) => {
    const tokenizer = withTokens(tokens);
    const { ids } = fillInMiddle(tokenizer, "def f(", "  return 1")!;
    expect(tokenizer.decode(ids)).toBe(expected);
    for (const text of tokens.slice(0, 2)) expect(ids).toContain(tokenizer.tokenToId(text));
    const given = tokenizer.encode("def f(", { addSpecialTokens: false });
    expect(fillInMiddle(tokenizer, given, "  return 1")!.ids).toEqual(ids);
  });

  it("ends where a file would, and at no other text", () => {
    const tokenizer = withTokens(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|file_sep|>"]);
    const { stopTokens } = fillInMiddle(tokenizer, "a", "b")!;
    expect(stopTokens.map((id) => tokenizer.idToToken(id)).sort()).toEqual(["<|file_sep|>", "<|fim_pad|>"]);
  });

  it("is none for a model without such tokens", () => {
    expect(fillInMiddle(withTokens(["<|fim_prefix|>"]), "a", "b")).toBeNull();
  });
});
