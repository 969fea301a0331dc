/**
 * Tokens of GGUF files against llama.cpp's (llama-tokens.json.golden, whose merges reach across words of every kind), and what
 * a file that does not say it begins and ends texts with.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ggufFile, type Metadata } from "../../../test/support/gguf.ts";
import { memorySource } from "../../byte-source.ts";
import { Tokenizer } from "../../text/tokenizer.ts";
import { readGgufHeader } from "./header.ts";
import { GgufMetadata } from "./metadata.ts";
import { preTokenizerNames } from "./pretokenizers.ts";
import { type GgufTokenizer, ggufTokenizer } from "./tokenizer.ts";

interface Golden {
  readonly tokens: readonly string[];
  readonly merges: readonly string[];
  readonly texts: readonly string[];
  /** Names that are followed as their tokenizer.json has them, which llama.cpp only approximates. */
  readonly approximated: readonly string[];
  readonly kinds: readonly { readonly bos: boolean; readonly ids: readonly number[][]; readonly names: string[] }[];
}

const golden = JSON.parse(readFileSync(new URL("llama-tokens.json.golden", import.meta.url), "utf8")) as Golden;
const CONTROL = 3;

async function read(metadata: Record<string, Metadata>): Promise<GgufTokenizer> {
  const { metadata: values } = await readGgufHeader(memorySource("x.gguf", ggufFile(metadata, [])));
  return ggufTokenizer(new GgufMetadata("x.gguf", values))!;
}

const byteLevel = (changes: Record<string, Metadata> = {}): Record<string, Metadata> => ({
  "tokenizer.ggml.model": "gpt2",
  "tokenizer.ggml.tokens": golden.tokens,
  "tokenizer.ggml.token_type": Int32Array.from(golden.tokens, (_, id) => (id < 2 ? CONTROL : 1)),
  "tokenizer.ggml.merges": golden.merges,
  "tokenizer.ggml.bos_token_id": 0,
  "tokenizer.ggml.eos_token_id": 1,
  ...changes,
});

it("has llama.cpp's tokens of every name", () => {
  expect(golden.kinds.flatMap(({ names }) => names).sort()).toEqual([...preTokenizerNames].sort());
});

const cases = golden.kinds.flatMap((kind) => kind.names.map((name) => ({ ...kind, name })));
it.each(cases)("$name", async ({ name, bos, ids }) => {
  const { tokenizer, config } = await read(byteLevel({ "tokenizer.ggml.pre": name }));
  const own = new Tokenizer(tokenizer, config);
  const found = golden.texts.map((text) => own.encode(text, { addSpecialTokens: false }));
  const differing = found.filter((tokens, i) => String(tokens) !== String(ids[i]));
  expect(differing.length).toBeLessThanOrEqual(golden.approximated.includes(name) ? 2 : 0);
  expect(own.encode("a")[0] === 0).toBe(bos);
});

describe("what a file does not say", () => {
  it("is llama.cpp's: words are cut by its default, with a note", async () => {
    const named = await read(byteLevel({ "tokenizer.ggml.pre": "default" }));
    const { notes, ...nameless } = await read(byteLevel());
    expect({ ...nameless, notes: [] }).toEqual(named);
    expect(notes).toEqual([expect.stringMatching(/x.gguf: names no pre-tokenizer \(tokenizer.ggml.pre\)/)]);
  });

  it("is llama.cpp's: begin and end tokens are those of the kind", async () => {
    const { "tokenizer.ggml.bos_token_id": _, "tokenizer.ggml.eos_token_id": __, ...rest } = byteLevel();
    expect(await read({ ...rest, "tokenizer.ggml.pre": "qwen2" })).toMatchObject({ bosId: 11, eosIds: [11] });
    expect(await read({ ...rest, "tokenizer.ggml.pre": "glm4" })).toMatchObject({ bosId: null, eosIds: [11] });
    const pieces = { "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"] };
    expect(await read(pieces)).toMatchObject({ bosId: 1, eosIds: [2] });
  });
});

describe("end tokens", () => {
  const ids = async (texts: readonly string[], changes: Record<string, Metadata> = {}) => {
    const tokens = [...golden.tokens, ...texts];
    const types = Int32Array.from(tokens, (_, id) => (id < 2 ? CONTROL : 1));
    const list = { "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.pre": "qwen2" };
    const { eosIds, tokenizer } = await read(byteLevel({ ...list, ...changes }));
    const special = (tokenizer.added_tokens as { id: number; special: boolean }[]).filter((token) => token.special);
    return { ends: eosIds.map((id) => tokens[id]), special: special.map(({ id }) => tokens[id]) };
  };

  it.each<[readonly string[], readonly string[]]>([
    [
      ["<|end_of_text|>", "<|eot_id|>"],
      ["<|end_of_text|>", "<|eot_id|>"],
    ],
    [["<|im_end|>", "<|im_start|>"], ["<|im_end|>"]],
    [
      ["<end_of_turn>", "<eos>", "</s>"],
      ["<end_of_turn>", "<eos>", "</s>"],
    ],
    [
      ["<|end|>", "<|return|>", "<|call|>"],
      ["<|return|>", "<|call|>"],
    ],
    [
      ["<|end|>", "<|return|>"],
      ["<|end|>", "<|return|>"],
    ],
    [["<|tool_response>", "</s>"], ["<|tool_response>"]],
    [
      ["<|file_sep|>", "<|repo_name|>", "<|fim_pad|>"],
      ["<|file_sep|>", "<|repo_name|>", "<|fim_pad|>"],
    ],
  ])("of %j are %j, whatever their type", async (texts, expected) => {
    const { ends, special } = await ids(texts);
    expect(ends).toEqual(["<end>", ...expected]);
    expect(special).toEqual(["<begin>", "<end>", ...expected]);
  });

  it("are those that metadata names, too", async () => {
    const eot = { "tokenizer.ggml.eot_token_id": golden.tokens.length };
    expect((await ids(["<over>"], eot)).ends).toEqual(["<end>", "<over>"]);
  });
});
