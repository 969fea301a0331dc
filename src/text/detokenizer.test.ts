/** Streaming detokenizer: pieces together equal the whole, and no piece shows half a character. */
import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import { Detokenizer } from "./detokenizer.ts";
import { createRandom } from "./random.ts";
import { Tokenizer } from "./tokenizer.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const byteLevelFile = read("byte-level-tokenizer.json.golden");
const byteFallbackFile = read("byte-fallback-tokenizer.json.golden");
const tokenizers = {
  "byte-level": new Tokenizer(byteLevelFile),
  "byte fallback": new Tokenizer(byteFallbackFile),
  metaspace: new Tokenizer({
    ...byteFallbackFile,
    normalizer: null,
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always" },
    decoder: {
      type: "Sequence",
      decoders: [{ type: "ByteFallback" }, { type: "Metaspace", replacement: "▁", prepend_scheme: "always" }],
    },
  }),
  wordpiece: new Tokenizer({
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: { "[UNK]": 0, hello: 1, "##ing": 2, world: 3, "##s": 4, ".": 5 },
    },
    pre_tokenizer: { type: "Whitespace" },
    decoder: { type: "WordPiece", prefix: "##", cleanup: false },
  }),
};

const pieces = (tokenizer: Tokenizer, ids: readonly number[], after?: readonly number[]) => {
  const detokenizer = new Detokenizer(tokenizer, { after });
  return [...ids.map((id) => detokenizer.push(id)), detokenizer.flush()];
};
const whole = (tokenizer: Tokenizer, ids: readonly number[]) =>
  tokenizer.decode(ids, { skipSpecialTokens: true, stream: true });

describe.each(Object.entries(tokenizers))("%s", (_, tokenizer) => {
  it("equals decoding at once on random ids: invalid bytes, special tokens and all", () => {
    const random = createRandom(1);
    for (let round = 0; round < 300; round++) {
      const length = random.uint32() % 60;
      const ids = Array.from({ length }, () => random.uint32() % tokenizer.vocabSize);
      expect(pieces(tokenizer, ids).join("")).toBe(whole(tokenizer, ids));
    }
  });

  it("equals decoding at once on text as bytes, whole or cut anywhere", () => {
    const texts = [
      "👩‍🚀🏳️‍🌈👨‍👩‍👧‍👦",
      "é\u0301\uFEFF世界\uFEFF\uFFFD hello",
      " the  hello\n\n",
      "�a��b���",
      "\u{10FFFF}x",
    ];
    for (const text of texts) {
      const ids = tokenizer.encode(text, { addSpecialTokens: false });
      for (let end = 0; end <= ids.length; end++)
        expect(pieces(tokenizer, ids.slice(0, end)).join("")).toBe(whole(tokenizer, ids.slice(0, end)));
    }
  });
});

describe("byte by byte", () => {
  const bytes = (text: string) => [...new TextEncoder().encode(text)];
  const byteFallback = tokenizers["byte fallback"];
  const idsOf = (values: number[]) =>
    values.map((byte) => byteFallback.tokenToId(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`)!);

  it("gives each character when its last byte has come", () => {
    expect(pieces(byteFallback, idsOf(bytes("é👩a")))).toEqual(["", "é", "", "", "", "👩", "a", ""]);
  });

  it("gives a broken character when what follows shows that it is broken", () => {
    expect(pieces(byteFallback, idsOf([0xe2, 0x82, 0x28, 0xf0, 0x9f]))).toEqual(["", "", "\uFFFD(", "", "", "\uFFFD"]);
  });

  it("equals decoding at once on random bytes, mostly parts of long characters", () => {
    const random = createRandom(2);
    const likely = [0xf0, 0x9f, 0x92, 0xa9, 0xe2, 0x80, 0x8d, 0xef, 0xbb, 0xbf, 0xbd, 0xc3, 0x28, 0xff];
    for (let round = 0; round < 500; round++) {
      const values = Array.from({ length: 100 }, () => likely[random.uint32() % likely.length]!);
      const ids = idsOf(values);
      expect(pieces(byteFallback, ids).join("")).toBe(whole(byteFallback, ids));
    }
  });
});

describe("after a prompt", () => {
  const tokenizer = tokenizers["byte fallback"];
  const ids = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });

  it("keeps the leading space of a word that continues a text, and drops it after a control token", () => {
    expect(pieces(tokenizer, ids("world"), ids("hello")).join("")).toBe(" world");
    expect(pieces(tokenizer, ids("world"), [...ids("hello"), 4]).join("")).toBe("world");
    expect(pieces(tokenizer, ids("world"), []).join("")).toBe("world");
  });

  it("completes a character that the prompt began", () => {
    const rocket = ids("🚀").slice(1);
    expect(pieces(tokenizer, rocket.slice(2), [...ids("hello"), ...rocket.slice(0, 2)]).join("")).toBe("🚀");
  });
});

it("decodes a bounded number of ids per token", () => {
  const tokenizer = new Tokenizer(byteFallbackFile);
  const decode = tokenizer.decode.bind(tokenizer);
  let decoded = 0;
  vi.spyOn(tokenizer, "decode").mockImplementation((window) => {
    decoded += window.length;
    return decode(window);
  });
  const streams = [tokenizer.encode("hello the world ".repeat(200)), new Array<number>(2000).fill(5 + 0x9f)];
  for (const ids of streams) {
    decoded = 0;
    pieces(tokenizer, ids);
    expect(decoded / ids.length).toBeLessThan(12);
  }
});

it("has no text for padded ids, refuses what is no id, and starts anew after flush", () => {
  const detokenizer = new Detokenizer(tokenizers["byte fallback"]);
  expect(detokenizer.push(1 << 20)).toBe("");
  for (const bad of [-1, 0.5, Number.NaN]) expect(() => detokenizer.push(bad)).toThrow("expected a token id");
  const hello = tokenizers["byte fallback"].tokenToId("▁hello")!;
  expect([detokenizer.push(hello), detokenizer.flush(), detokenizer.push(hello)]).toEqual(["hello", "", "hello"]);
});
