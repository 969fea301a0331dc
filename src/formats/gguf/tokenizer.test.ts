/** Parts of the vocabularies of real GGUF files: strings and ids by gguf and Rust's tokenizers (scripts/goldens/gguf-vocabularies.js). */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ggufFile, type Metadata } from "../../../test/support/gguf.ts";
import { memorySource } from "../../byte-source.ts";
import { Detokenizer } from "../../text/detokenizer.ts";
import { Tokenizer } from "../../text/tokenizer.ts";
import { readGgufHeader } from "./header.ts";
import { GgufMetadata } from "./metadata.ts";
import { ggufTokenizer } from "./tokenizer.ts";

interface Golden {
  readonly kinds: readonly {
    readonly file: string;
    readonly metadata: Readonly<Record<string, number[] | string | readonly string[] | boolean | null>>;
    /** What each token alone decodes to. */
    readonly decoded: readonly string[];
    readonly texts: readonly { readonly text: string; readonly ids: number[] }[];
  }[];
}

const golden = JSON.parse(readFileSync(new URL("vocabularies.json.golden", import.meta.url), "utf8")) as Golden;

describe.each(golden.kinds)("$file", ({ metadata, decoded, texts }) => {
  const entries = Object.entries(metadata).flatMap(([name, value]): [string, Metadata][] => {
    const typed = Array.isArray(value) && name === "token_type" ? Int32Array.from(value as number[]) : value;
    const stored = name === "scores" ? Float32Array.from(value as number[]) : typed;
    return stored === null ? [] : [[`tokenizer.ggml.${name}`, stored as Metadata]];
  });
  const tokens = metadata.tokens as readonly string[];

  async function load(): Promise<Tokenizer> {
    const file = memorySource("x.gguf", ggufFile(Object.fromEntries(entries), []));
    const { tokenizer, config } = ggufTokenizer(new GgufMetadata("x.gguf", (await readGgufHeader(file)).metadata))!;
    return new Tokenizer(tokenizer, config);
  }

  it("has every token, and its text", async () => {
    const own = await load();
    expect(tokens.map((_, id) => own.idToToken(id))).toEqual(tokens);
    expect(tokens.map((_, id) => own.decode([id]))).toEqual(decoded);
  });

  it("makes the ids of texts, and the texts of ids, whole and as a stream", async () => {
    const own = await load();
    for (const { text, ids } of texts) {
      expect(own.encode(text, { addSpecialTokens: false }), JSON.stringify(text)).toEqual(ids);
      expect(own.decode(ids)).toBe(text);
      const stream = new Detokenizer(own);
      expect(ids.map((id) => stream.push(id)).join("") + stream.flush()).toBe(text);
    }
  });
});
