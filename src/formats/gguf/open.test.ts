/** GGUF files that are right, wrong and hostile. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { type GgufEntry, ggufFile, type Metadata } from "../../../test/support/gguf.ts";
import { Random } from "../../../test/support/random.ts";
import { memorySource } from "../../byte-source.ts";
import { InvalidFileError, LowbitError } from "../../errors.ts";
import { dequantize } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { Tokenizer } from "../../text/tokenizer.ts";
import { openCheckpoint } from "../checkpoint.ts";
import { blockFormats } from "./blocks.ts";
import { readGgufHeader } from "./header.ts";
import { GgufMetadata } from "./metadata.ts";
import { openGguf } from "./open.ts";
import { ggufTokenizer } from "./tokenizer.ts";

const folder = await temporaryFolder();
let files = 0;

async function open(bytes: Uint8Array) {
  const path = join(folder, `${++files}.gguf`);
  await writeFile(path, bytes);
  return openGguf(path);
}

const metadata: Readonly<Record<string, Metadata>> = {
  "general.architecture": "llama",
  "llama.context_length": 64,
  "llama.embedding_length": 32,
  "llama.block_count": 1,
  "llama.feed_forward_length": 32,
  "llama.attention.head_count": 4,
  "llama.attention.head_count_kv": 2,
  "llama.attention.layer_norm_rms_epsilon": 1e-5,
};

const Q8_0 = 8;
/** Rows of one block each: scale 1, integers 32 * row + column. */
function q8Rows(rows: number): Uint8Array {
  return Uint8Array.from({ length: rows * 34 }, (_, i) => {
    const [row, at] = [Math.floor(i / 34), i % 34];
    return at === 0 ? 0 : at === 1 ? 0x3c : 4 * row + at - 2;
  });
}

const matrix = (name: string, rows: number): GgufEntry => ({ name, sizes: [32, rows], type: Q8_0, data: q8Rows(rows) });
const tensors = [matrix("token_embd.weight", 8), matrix("blk.0.attn_q.weight", 32), matrix("blk.0.attn_v.weight", 16)];

describe("a GGUF file", () => {
  it("is a checkpoint with the names of Hugging Face, and its config", async () => {
    const checkpoint = await open(ggufFile(metadata, tensors));
    expect(checkpoint.tensors.names).toContain("model.layers.0.self_attn.q_proj.weight");
    expect(checkpoint.config).toMatchObject({
      architectures: ["LlamaForCausalLM"],
      hidden_size: 32,
      head_dim: 8,
      vocab_size: 8,
      tie_word_embeddings: true,
      rope_theta: 10000,
    });
    expect(checkpoint.tokenizerJson).toBeNull();
    await checkpoint.close();
  });

  it("may say what needs 64 bits of things that no model needs", async () => {
    const large = { "general.hash": 2n ** 64n - 1n, "general.least": -(2n ** 63n), "general.seed": 2n ** 53n - 1n };
    const bytes = ggufFile({ ...metadata, ...large }, tensors);
    const checkpoint = await open(bytes);
    expect(checkpoint.tensors.names).toHaveLength(3);
    await checkpoint.close();
    const { metadata: found } = await readGgufHeader(memorySource("x.gguf", bytes));
    expect(Object.keys(large).map((key) => found.get(key))).toEqual([2n ** 64n - 1n, -(2n ** 63n), 2 ** 53 - 1]);
  });

  it("may be several files, of which any is named", async () => {
    const target = join(folder, "split");
    await mkdir(target);
    const path = (part: number) => join(target, `tiny-0000${part}-of-00002.gguf`);
    await writeFile(path(1), ggufFile({ ...metadata, "split.tensors.count": 3 }, tensors.slice(0, 1)));
    await expect(openGguf(path(1))).rejects.toThrow(/one of 2 files, of which tiny-00002-of-00002.gguf is absent/);
    await writeFile(path(2), ggufFile({ "split.no": 1 }, tensors.slice(1)));
    const whole = await open(ggufFile(metadata, tensors));
    for (const named of [path(1), path(2), target]) {
      const checkpoint = await openCheckpoint(named);
      expect(checkpoint.tensors.names).toEqual(whole.tensors.names);
      for (const name of whole.tensors.names)
        expect(await checkpoint.tensors.read(name)).toEqual(await whole.tensors.read(name));
      await checkpoint.close();
    }
    await whole.close();
    await writeFile(path(2), ggufFile({}, tensors.slice(2)));
    await expect(openGguf(path(1))).rejects.toThrow(/files have 2 tensors but split.tensors.count is 3/);
    await writeFile(path(2), ggufFile({}, tensors));
    await expect(openGguf(path(1))).rejects.toThrow(/two of its files have tensor "token_embd.weight"/);
  });

  it("has queries whose heads are turned back to halves, by rows, whole, and in few bits", async () => {
    const { tensors: source, close } = await open(ggufFile(metadata, tensors));
    const name = "model.layers.0.self_attn.q_proj.weight";
    const values = (await source.read(name)).data as Float32Array;
    // Heads of 8 rows: 0 2 4 6 1 3 5 7.
    const firsts = Array.from({ length: 8 }, (_, row) => values[32 * row]!);
    expect(firsts).toEqual([0, 8, 16, 24, 4, 12, 20, 28]);
    const some = await source.readRows(name, 5, 7);
    expect(some.data).toEqual(values.slice(5 * 32, 12 * 32));
    const low = source.lowBit!(name)!;
    expect(low.spec).toMatchObject({ bits: 8, groupSize: 32, scaleDType: "f16", n: 32, k: 32 });
    expect(dequantize(await low.rows(0, 32))).toEqual(values);
    expect(dequantize(await low.rows(5, 7))).toEqual(values.slice(5 * 32, 12 * 32));
    await close();
  });

  it.each<[string, Record<string, Metadata>, GgufEntry[], RegExp]>([
    ["an unknown architecture", { "general.architecture": "mamba" }, [], /"mamba" is not supported, only llama, qwen2/],
    ["a missing size", { "llama.block_count": "1" }, [], /llama.block_count: expected a number but found "1"/],
    [
      "a size beyond 2^53",
      { "llama.block_count": 2n ** 63n },
      [],
      /llama.block_count: expected a number but found 9223372036854775808/,
    ],
    ["an unknown type", {}, [{ ...tensors[0]!, type: 15 }], /stored as Q8_K, which is not supported, only F32/],
    ["columns that are no blocks", {}, [{ ...tensors[0]!, sizes: [31, 8] }], /31 columns are no blocks of 32/],
    ["a tensor past the end", {}, [{ ...tensors[0]!, sizes: [32, 8000] }], /after the file's/],
    ["sizes beyond 2^53", {}, [{ ...tensors[0]!, sizes: [2 ** 40, 2 ** 40] }], /sizes \[/],
    [
      "one size beyond 2^53",
      {},
      [{ ...tensors[0]!, sizes: [2 ** 60, 8] }],
      /integer 1152921504606846976 is beyond 2\^53/,
    ],
    [
      "more tokens than rows",
      { "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": Array.from({ length: 9 }, (_, i) => `t${i}`) },
      [],
      /tokenizer.ggml.tokens: expected at most 8 tokens, the rows of token_embd.weight, but found 9/,
    ],
    ["an alignment of 3", { "general.alignment": 3 }, [], /general.alignment: expected a power of two/],
    ["an alignment of 0", { "general.alignment": 0 }, [], /general.alignment: expected a power of two/],
    ["a tensor twice", {}, [tensors[0]!, tensors[0]!], /lists tensor "token_embd.weight" twice/],
  ])("with %s is refused", async (_, changes, entries, message) => {
    const given = entries.length > 0 ? entries : tensors;
    await expect(open(ggufFile({ ...metadata, ...changes }, given))).rejects.toThrow(message);
    await expect(open(ggufFile({ ...metadata, ...changes }, given))).rejects.toThrow(LowbitError);
  });
});

describe("few bits", () => {
  it.each(blockFormats.filter(({ isLattice }) => !isLattice))(
    "of $name are the values, by rows, whole and with turned heads",
    async (format) => {
      const random = new Random(format.id);
      const [n, k] = [32, 256];
      // Without the bit, no half is infinite or not a number.
      const data = Uint8Array.from(
        { length: (n * k * format.bytes) / format.size },
        () => random.integer(0, 255) & 0xbf,
      );
      const checkpoint = await open(
        ggufFile({ ...metadata, "llama.embedding_length": 256, "llama.attention.key_length": 8 }, [
          matrix("token_embd.weight", 8),
          { name: "blk.0.attn_q.weight", sizes: [k, n], type: format.id, data },
          { name: "blk.0.attn_output.weight", sizes: [k, n], type: format.id, data },
        ]),
      );
      for (const module of ["q_proj", "o_proj"]) {
        const name = `model.layers.0.self_attn.${module}.weight`;
        const values = (await checkpoint.tensors.read(name)).data as Float32Array;
        const low = checkpoint.tensors.lowBit!(name)!;
        for (const [first, count] of [
          [0, n],
          [5, 12],
        ] as const) {
          const found = dequantize(await low.rows(first, count));
          if (low.minima) {
            const minima = toFloat32(await low.minima.rows(first, count));
            const { groupSize } = low.spec;
            for (let i = 0; i < found.length; i++) found[i]! += minima[Math.floor(i / groupSize)]!;
          }
          expect(found).toEqual(values.slice(first * k, (first + count) * k));
        }
      }
      await checkpoint.close();
    },
  );
});

it("multiplies a matrix by the factor that is a tensor of its own", async () => {
  const random = new Random(40);
  const nvfp4 = blockFormats.find(({ name }) => name === "NVFP4")!;
  const data = Uint8Array.from({ length: (32 * 256 * nvfp4.bytes) / nvfp4.size }, () => random.integer(0, 126));
  const files = [
    [],
    [{ name: "blk.0.attn_output.scale", sizes: [1], type: 0, data: new Uint8Array(Float32Array.of(0.3).buffer) }],
  ];
  const [plain, scaled] = await Promise.all(
    files.map((extra) =>
      open(
        ggufFile({ ...metadata, "llama.embedding_length": 256, "llama.attention.key_length": 8 }, [
          matrix("token_embd.weight", 8),
          { name: "blk.0.attn_output.weight", sizes: [256, 32], type: nvfp4.id, data },
          ...extra,
        ]),
      ),
    ),
  );
  const name = "model.layers.0.self_attn.o_proj.weight";
  const values = (await plain!.tensors.read(name)).data as Float32Array;
  const expected = values.map((value) => value * Math.fround(0.3));
  expect((await scaled!.tensors.read(name)).data).toEqual(expected);
  expect((await scaled!.tensors.readRows(name, 3, 2)).data).toEqual(expected.slice(3 * 256, 5 * 256));
  const found = dequantize(await scaled!.tensors.lowBit!(name)!.rows(0, 32));
  for (const [i, value] of expected.entries())
    expect(Math.abs(found[i]! - value)).toBeLessThanOrEqual(2 ** -22 * Math.abs(value));
  expect(scaled!.tensors.names).not.toContain("blk.0.attn_output.scale");
  await plain!.close();
  await scaled!.close();
});

describe("hostile headers", () => {
  const read = (bytes: Uint8Array) => readGgufHeader(memorySource("x.gguf", bytes));
  const good = ggufFile({ ...metadata, list: ["a", "b"], numbers: Float32Array.of(1, 2) }, tensors);
  const patched = (at: number, value: bigint) => {
    const bytes = good.slice();
    new DataView(bytes.buffer).setBigUint64(at, value, true);
    return bytes;
  };

  it.each<[string, Uint8Array, RegExp]>([
    ["2^60 tensors", patched(8, 2n ** 60n), /tensor count .* does not fit/],
    ["2^60 entries", patched(16, 2n ** 60n), /metadata count .* does not fit/],
    ["a string past the end", patched(24, 2n ** 63n), /string length .* does not fit/],
    ["another magic", good.slice(1), /does not begin with GGUF, .* but with "GUF\\u0003"/],
    ["version 1", good.with(4, 1), /version 1 is not supported/],
    ["nothing", new Uint8Array(0), /cut off after 0 bytes/],
  ])("%s", async (_, bytes, message) => {
    await expect(read(bytes)).rejects.toThrow(message);
  });

  it("cut anywhere, or with any byte changed, are errors of this package or headers", async () => {
    const random = new Random(1);
    const end = (await read(good)).dataStart;
    for (let length = 0; length < end - 32; length += 3)
      await expect(read(good.slice(0, length))).rejects.toThrow(InvalidFileError);
    for (let i = 0; i < 2000; i++) {
      const bytes = good.slice();
      for (let change = 0; change < 3; change++) bytes[random.integer(0, end - 1)] = random.integer(0, 255);
      const checkpoint = await read(bytes).catch((error: unknown) => error);
      if (checkpoint instanceof Error) expect(checkpoint).toBeInstanceOf(LowbitError);
    }
  });
});

describe("tokenizers", () => {
  const make = (values: Record<string, Metadata>) => {
    const entries = Object.entries(values).map(
      ([key, value]) => [key, ArrayBuffer.isView(value) ? [...(value as Float32Array)] : value] as const,
    );
    const found = ggufTokenizer(new GgufMetadata("x.gguf", new Map(entries)))!;
    return { ...found, encoder: new Tokenizer(found.tokenizer, found.config) };
  };

  it("SentencePiece: the piece of the highest score is joined first", () => {
    const pieces = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "bc", "▁ab", "<0x64>"];
    const scores = Float32Array.of(0, 0, 0, -1, -2, -3, -4, -6, -5, -7, 0);
    const types = Int32Array.of(2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6);
    const { encoder, eosIds, bosId } = make({
      "tokenizer.ggml.model": "llama",
      "tokenizer.ggml.tokens": pieces,
      "tokenizer.ggml.scores": scores,
      "tokenizer.ggml.token_type": types,
      "tokenizer.ggml.bos_token_id": 1,
      "tokenizer.ggml.eos_token_id": 2,
    });
    expect([bosId, eosIds]).toEqual([1, [2]]);
    expect(encoder.encode("abc")).toEqual([1, 3, 4, 8]);
    expect(encoder.encode("ab")).toEqual([1, 9]);
    expect(encoder.encode("d", { addSpecialTokens: false })).toEqual([3, 10]);
    expect(encoder.decode([9, 10])).toBe("abd");
  });

  it("ids of no token are none, or what llama.cpp assumes", () => {
    const base = { "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"] };
    const ids = (id: Metadata) =>
      Object.fromEntries(
        ["bos", "eos", "unknown", "padding", "eot", "fim_pad"].map((name) => [`tokenizer.ggml.${name}_token_id`, id]),
      );
    const without = make(base);
    for (const id of [4, 2 ** 32 - 1, -1, 2n ** 64n - 1n]) {
      const { tokenizer, config, eosIds, bosId } = make({ ...base, ...ids(id) });
      expect({ tokenizer, config, eosIds, bosId }).toEqual({
        ...{ tokenizer: without.tokenizer, config: without.config, eosIds: [2], bosId: 1 },
      });
      expect(config).toEqual({ bos_token: "<s>", eos_token: "</s>", unk_token: "<unk>" });
    }
  });

  it("pieces keep a leading U+FEFF, and bytes that are no character alone", async () => {
    const pieces = ["<unk>", "<s>", "</s>", "#", "\uFEFF#", "\uFEFF", "?1", "?2", "?3", "\uFFFD"];
    const types = Int32Array.from(pieces, (_, id) => (id < 3 ? 3 : 1));
    const bytes = ggufFile(
      {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_space_prefix": false,
      },
      [],
    );
    const patch = (piece: string, ...with_: number[]) => bytes.set(with_, Buffer.from(bytes).indexOf(piece));
    patch("?1", 0xe2, 0x96);
    patch("?2", 0x81, 0x21);
    patch("?3", 0xff, 0xfe);
    const { metadata } = await readGgufHeader(memorySource("x.gguf", bytes));
    const { encoder } = make(Object.fromEntries(metadata) as Record<string, Metadata>);
    const encode = (text: string) => encoder.encode(text, { addSpecialTokens: false });
    expect(encode("#\uFEFF#\uFEFF\uFFFD")).toEqual([3, 4, 5, 9]);
    expect(encoder.decode([3, 4, 5, 9])).toBe("#\uFEFF#\uFEFF\uFFFD");
    expect(encoder.decode([6, 7])).toBe("▁!");
    expect(encoder.decode([3, 8])).toBe("#\uFFFD\uFFFD");
  });

  it("byte level: merges in order, control tokens, the end of a turn", () => {
    const pieces = ["a", "b", "Ġ", "ab", "Ġab", "<|im_end|>", "1"];
    const { encoder, eosIds } = make({
      "tokenizer.ggml.model": "gpt2",
      "tokenizer.ggml.pre": "qwen2",
      "tokenizer.ggml.tokens": pieces,
      "tokenizer.ggml.merges": ["a b", "Ġ ab"],
      "tokenizer.ggml.token_type": Int32Array.of(1, 1, 1, 1, 1, 3, 1),
    });
    expect(encoder.encode("ab ab11<|im_end|>")).toEqual([3, 4, 6, 6, 5]);
    expect(eosIds).toEqual([5]);
  });

  it.each<[string, Record<string, Metadata>, RegExp]>([
    [
      "an unknown kind",
      { "tokenizer.ggml.model": "t5" },
      /tokenizer "t5" is not supported, only llama, gemma4 and gpt2/,
    ],
    ["unknown words", { "tokenizer.ggml.pre": "x" }, /pre "x" is not supported, only llama-bpe/],
    ["types of another number", { "tokenizer.ggml.token_type": Int32Array.of(1) }, /token_type has 1 entries but/],
    ["a beginning that is no number", { "tokenizer.ggml.bos_token_id": "9" }, /bos_token_id: expected a whole number/],
    ["a merge of one", { "tokenizer.ggml.merges": ["a"] }, /an entry that is no pair/],
  ])("with %s are refused", (_, changes, message) => {
    const base = { "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.merges": [] };
    expect(() => make({ ...base, ...changes })).toThrow(message);
  });
});
