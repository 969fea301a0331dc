/** Quantized weights in safetensors of TorchAO and MLX, Meta's checkpoints and llama2.c's files, made here by hand. */
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { Random } from "../../test/support/random.ts";
import { memorySource } from "../byte-source.ts";
import type { DType, TypedArray } from "../dtype.ts";
import { dequantize } from "../quantized.ts";
import { toFloat32 } from "../tensor.ts";
import { openCheckpoint } from "./checkpoint.ts";
import { openLlama2c } from "./llama2c.ts";
import { metaConfig, metaTensors } from "./meta.ts";
import { writeSafetensors } from "./safetensors-writer.ts";
import type { OpenTensors } from "./tensor-source.ts";

const folder = await temporaryFolder();
let folders = 0;

interface Entry {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: TypedArray;
}

async function write(config: object, tensors: Record<string, Entry>, metadata: Record<string, string> = {}) {
  const path = join(folder, String(++folders));
  await mkdir(path);
  await writeFile(join(path, "config.json"), JSON.stringify(config));
  const entries = Object.entries(tensors).map(([name, { dtype, shape, data }]) => ({
    name,
    dtype,
    shape,
    data: async () => data,
  }));
  await writeSafetensors(join(path, "model.safetensors"), entries, metadata);
  return openCheckpoint(path);
}

const random = new Random(1);
const integers = (length: number, low: number, high: number) => Array.from({ length }, () => random.integer(low, high));

describe("TorchAO's safetensors", () => {
  const [n, k, groups] = [3, 8, 2];
  const qdata = Int8Array.from(integers(n * k, -4, 3));
  const scale = random.floats(n * groups);
  const zero = Int8Array.from(integers(n * groups, -4, 3));
  const tensors: Record<string, Entry> = {
    "a.b._weight_qdata": { dtype: "i8", shape: [n, k], data: qdata },
    "a.b._weight_scale": { dtype: "f32", shape: [n, groups], data: scale },
    "a.b._weight_zero_point": { dtype: "i8", shape: [n, groups], data: zero },
    norm: { dtype: "f32", shape: [2], data: Float32Array.of(1, 2) },
  };
  const intx = (fields: object = {}) => ({
    "a.b.weight": JSON.stringify({
      _type: "IntxUnpackedToInt8Tensor",
      _data: {
        target_dtype: { _type: "torch.dtype", _data: "int3" },
        block_size: [1, 4],
        activation_quantization: "int8_asym_per_token",
        ...fields,
      },
    }),
    norm: JSON.stringify({ _type: "Tensor" }),
    tensor_names: '["a.b.weight", "norm"]',
  });

  it("are matrices of integers, and of floats", async () => {
    const checkpoint = await write({}, tensors, intx());
    const { tensors: source } = checkpoint;
    expect([...source.names].sort()).toEqual(["a.b.weight", "norm"]);
    const low = source.lowBit!("a.b.weight")!;
    expect([low.activations, low.spec.bits, low.spec.groupSize]).toEqual(["int8_per_token", 3, 4]);
    const weights = await low.rows(0, low.spec.n);
    expect([weights.qvals, weights.scales, weights.zeros]).toEqual([qdata, scale, zero]);
    const expected = Float32Array.from(qdata, (q, i) => {
      const group = Math.floor(i / k) * groups + Math.floor((i % k) / 4);
      return (q - zero[group]!) * scale[group]!;
    });
    expect((await source.read("a.b.weight")).data).toEqual(expected);
    expect((await source.readRows("a.b.weight", 1, 2)).data).toEqual(expected.slice(k));
    expect(dequantize(weights)).toEqual(expected);
    await checkpoint.close();
  });

  it("that TorchAO 0.18 wrote have the values that it gives", async () => {
    const path = join(folder, "torchao");
    await mkdir(path);
    await writeFile(join(path, "config.json"), "{}");
    await copyFile(new URL("torchao.safetensors.golden", import.meta.url), join(path, "model.safetensors"));
    const golden = await readFile(new URL("torchao.json.golden", import.meta.url), "utf8");
    const values = JSON.parse(golden) as Record<string, number[][]>;
    const { tensors: source, close } = await openCheckpoint(path);
    const bits = { four: 4, three: 3, eight: 8, one: 1 };
    for (const [name, expected] of Object.entries(values)) {
      const low = source.lowBit!(`${name}.weight`)!;
      expect(low.spec.bits).toBe(bits[name as keyof typeof bits]);
      expect(low.activations).toBe(name === "four" ? "int8_per_token" : "float");
      expect((await source.read(`${name}.weight`)).data).toEqual(Float32Array.from(expected.flat()));
    }
    expect(source.info("four.bias").shape).toEqual([6]);
    await close();
  });

  it.each<[string, Record<string, string>, RegExp]>([
    ["another type", { "a.b.weight": '{"_type":"Int4Tensor"}' }, /is a "Int4Tensor", only IntxUnpackedToInt8Tensor/],
    [
      "bytes for one kernel",
      { "a.b.weight": '{"_type":"IntxOpaqueTensor"}' },
      /is a "IntxOpaqueTensor", .*packed for kernels of one machine: save the model with intx_packing_format UNPACKED_TO_INT8/,
    ],
    [
      "version 1",
      { "a.b.weight": '{"_type":"AffineQuantizedTensor"}' },
      /is a "AffineQuantizedTensor", .*version 1 of TorchAO's configurations: quantize the float weights again with version 2/,
    ],
    ["no bits", intx({ target_dtype: "float8" }), /expected target_dtype int1 to int8/],
    [
      "other activations",
      intx({ activation_quantization: "int4_sym_per_token" }),
      /a.b.weight: expected activation_quantization null or "int8_asym_per_token" but found "int4_sym_per_token"/,
    ],
    ["groups that do not divide", intx({ block_size: [1, 3] }), /only matrices with blocks/],
    ["other groups than scales", intx({ block_size: [1, 8] }), /_weight_scale: expected \[3,1\] but found \[3,2\]/],
    ["no JSON", { "a.b.weight": "{" }, /metadata of a.b.weight is not valid JSON/],
  ])("with %s are refused", async (_, metadata, message) => {
    await expect(write({}, tensors, metadata)).rejects.toThrow(message);
  });

  it("with integers of more bits are refused when they are read", async () => {
    const two = intx({ target_dtype: { _type: "torch.dtype", _data: "int2" } });
    const checkpoint = await write({}, tensors, two);
    await expect(checkpoint.tensors.lowBit!("a.b.weight")!.rows(0, 1)).rejects.toThrow(/which is no integer of 2 bits/);
    await checkpoint.close();
  });
});

describe("MLX's safetensors", () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8].flatMap((bits) => [32, 64, 128].map((groupSize) => [bits, groupSize] as const)))(
    "integers of %i bits in groups of %i",
    async (bits, groupSize) => {
      const [n, columns] = [2, 256];
      const q = integers(n * columns, 0, 2 ** bits - 1);
      const bytes = new Uint8Array((n * columns * bits) / 8);
      for (const [i, value] of q.entries())
        for (let b = 0; b < bits; b++) bytes[(i * bits + b) >> 3]! |= ((value >> b) & 1) << ((i * bits + b) & 7);
      const scales = random.floats((n * columns) / groupSize);
      const biases = random.floats((n * columns) / groupSize);
      const words = (columns * bits) / 32;
      const checkpoint = await write(
        { quantization: { group_size: 64, bits: 4, m: { group_size: groupSize, bits } } },
        {
          "m.weight": { dtype: "u32", shape: [n, words], data: new Uint32Array(bytes.buffer) },
          "m.scales": { dtype: "f32", shape: [n, columns / groupSize], data: scales },
          "m.biases": { dtype: "f32", shape: [n, columns / groupSize], data: biases },
        },
      );
      const { tensors } = checkpoint;
      expect([tensors.names, tensors.info("m.weight").shape]).toEqual([["m.weight"], [n, columns]]);
      const { data } = await tensors.read("m.weight");
      for (const [i, value] of q.entries()) {
        const group = Math.floor(i / groupSize);
        expect(data[i]).toBeCloseTo(scales[group]! * value + biases[group]!, 4);
      }
      expect((await tensors.readRows("m.weight", 1, 1)).data).toEqual(data.slice(columns));
      const low = tensors.lowBit!("m.weight")!;
      const values = dequantize(await low.rows(0, n));
      const minima = toFloat32(await low.minima!.rows(0, n));
      expect([low.spec.bits, minima]).toEqual([bits, biases]);
      for (const [i, value] of q.entries())
        expect(values[i]).toBe(Math.fround(value * scales[Math.floor(i / groupSize)]!));
      await checkpoint.close();
    },
  );

  const magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
  /** Values of e4m3 by code, but for the codes that are no numbers. */
  const e4m3 = (code: number) => {
    const [exponent, fraction] = [(code >> 3) & 15, code & 7];
    const magnitude = exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7);
    return code & 128 ? -magnitude : magnitude;
  };
  const e8m0 = (code: number) => 2 ** (code - 127);
  const e2m1 = (code: number) => (code & 8 ? -1 : 1) * magnitudes[code & 7]!;
  const modes = {
    mxfp4: { bits: 4, groupSize: 32, value: e2m1, scale: e8m0, codes: [110, 140] },
    mxfp8: { bits: 8, groupSize: 32, value: e4m3, scale: e8m0, codes: [110, 140] },
    nvfp4: { bits: 4, groupSize: 16, value: e2m1, scale: e4m3, codes: [1, 126] },
  } as const;

  /** A module of a mode, and its values. */
  const floatModule = (mode: keyof typeof modes) => {
    const { bits, groupSize, value, scale, codes } = modes[mode];
    const [n, columns] = [3, 64];
    const q = integers(n * columns, 0, 2 ** bits - 1).map((code) => (bits === 8 && (code & 127) === 127 ? 0 : code));
    const bytes = new Uint8Array((n * columns * bits) / 8);
    for (const [i, code] of q.entries()) bytes[(i * bits) >> 3]! |= code << ((i * bits) & 7);
    const scales = Uint8Array.from(integers((n * columns) / groupSize, ...(codes as unknown as [number, number])));
    const tensors: Record<string, Entry> = {
      "m.weight": { dtype: "u32", shape: [n, (columns * bits) / 32], data: new Uint32Array(bytes.buffer) },
      "m.scales": { dtype: "u8", shape: [n, columns / groupSize], data: scales },
    };
    const values = Float32Array.from(q, (code, i) => value(code) * scale(scales[Math.floor(i / groupSize)]!) + 0);
    return { tensors, values, columns, bits, groupSize };
  };

  it.each(Object.keys(modes) as (keyof typeof modes)[])("floats of mode %s", async (mode) => {
    const { tensors, values, columns, bits, groupSize } = floatModule(mode);
    const { tensors: source, close } = await write({ quantization: { group_size: groupSize, bits, mode } }, tensors);
    expect([source.names, source.info("m.weight").shape]).toEqual([["m.weight"], [3, columns]]);
    const unsigned = (data: ArrayLike<number>) => Float32Array.from(data, (value) => value + 0);
    expect(unsigned(toFloat32(await source.read("m.weight")))).toEqual(values);
    expect(unsigned(toFloat32(await source.readRows("m.weight", 1, 2)))).toEqual(values.slice(columns));
    const low = source.lowBit!("m.weight");
    expect(low === null).toBe(mode === "mxfp8");
    if (low) expect(unsigned(dequantize(await low.rows(0, 3)))).toEqual(values);
    await close();
  });

  it.each<[string, object, (tensors: Record<string, Entry>) => void, RegExp]>([
    [
      "another mode",
      { mode: "mxfp6" },
      () => {},
      /mode "mxfp6" of m is not supported, only affine, mxfp4, mxfp8, nvfp4/,
    ],
    ["other groups", { group_size: 64 }, () => {}, /quantization of m: expected 4 bits in groups of 32 for mode mxfp4/],
    [
      "scales of another shape",
      {},
      (tensors) => {
        tensors["m.scales"] = { ...tensors["m.scales"]!, shape: [2, 3] };
      },
      /tensor m\.scales: expected \[3,2\] but found \[2,3\]/,
    ],
    [
      "scales that are floats",
      {},
      (tensors) => {
        tensors["m.scales"] = { dtype: "f32", shape: [3, 2], data: new Float32Array(6) };
      },
      /tensor m\.scales: expected bytes but found f32/,
    ],
    ["no biases", { mode: "affine" }, () => {}, /m\.biases/],
    [
      "a scale that is no number",
      {},
      (tensors) => void (tensors["m.scales"]!.data as Uint8Array).fill(255),
      /tensor m\.scales: expected numbers but found code 255/,
    ],
  ])("%s is refused", async (_, settings, change, message) => {
    const { tensors, bits, groupSize } = floatModule("mxfp4");
    change(tensors);
    const quantization = { group_size: groupSize, bits, mode: "mxfp4", ...settings };
    const reading = async () => {
      const { tensors: source, close } = await write({ quantization }, tensors);
      await source.read("m.weight").finally(close);
    };
    await expect(reading()).rejects.toThrow(message);
  });
});

/** Tensors in memory. */
function source(entries: Record<string, { shape: readonly number[]; data: Float32Array }>): OpenTensors {
  const rows = (name: string, first: number, count: number) => {
    const { shape, data } = entries[name]!;
    const columns = shape.slice(1).reduce((a, b) => a * b, 1);
    const part = data.slice(first * columns, (first + count) * columns);
    return { dtype: "f32" as const, shape: [count, ...shape.slice(1)], data: part };
  };
  return {
    names: Object.keys(entries),
    has: (name) => name in entries,
    info: (name) => ({ dtype: "f32", shape: entries[name]!.shape }),
    read: async (name) => rows(name, 0, entries[name]!.shape[0]!),
    readRows: async (name, first, count) => rows(name, first, count),
    close: async () => {},
  };
}

const count = (...shape: number[]) => ({
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i),
});

describe("Meta's checkpoints", () => {
  const params = { dim: 8, n_layers: 1, n_heads: 2, n_kv_heads: 1, vocab_size: -1, norm_eps: 1e-5 };
  const part = {
    "tok_embeddings.weight": count(4, 4),
    "norm.weight": count(8),
    "output.weight": count(2, 8),
    "layers.0.attention.wq.weight": count(4, 8),
    "layers.0.attention.wo.weight": count(8, 4),
    "layers.0.feed_forward.w1.weight": count(6, 8),
    "rope.freqs": count(2),
  };

  it("two parts are joined by rows or columns, queries turned to halves", async () => {
    const tensors = metaTensors("params.json", [source(part), source(part)], params);
    expect(tensors.names.length).toBe(6);
    expect(tensors.info("model.embed_tokens.weight").shape).toEqual([4, 8]);
    expect([...(await tensors.read("model.embed_tokens.weight")).data.slice(0, 8)]).toEqual([0, 1, 2, 3, 0, 1, 2, 3]);
    expect(tensors.info("lm_head.weight").shape).toEqual([4, 8]);
    expect(tensors.info("model.layers.0.self_attn.o_proj.weight").shape).toEqual([8, 8]);
    const q = (await tensors.read("model.layers.0.self_attn.q_proj.weight")).data;
    expect(Array.from({ length: 8 }, (_, row) => q[8 * row])).toEqual([0, 16, 8, 24, 0, 16, 8, 24]);
    expect(metaConfig(params, tensors)).toMatchObject({ intermediate_size: 12, vocab_size: 4, hidden_size: 8 });
  });

  it("without sizes is refused", () => {
    expect(() => metaTensors("params.json", [source(part)], { dim: "8" })).toThrow(/dim: expected a whole number/);
  });
});

describe("a file of llama2.c", () => {
  // dim, hidden, layers, heads, heads of keys, vocabulary, length
  const sizes = [8, 6, 2, 2, 1, 20, 16];
  const floats = 20 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 48) + 8 + 16 * 4;
  const bytes = new Uint8Array(28 + 4 * floats);
  bytes.set(new Uint8Array(Int32Array.from(sizes).buffer));
  bytes.set(new Uint8Array(Float32Array.from({ length: floats }, (_, i) => i).buffer), 28);
  const open = (content: Uint8Array) => openLlama2c(memorySource("model.bin", content));

  it("has its tensors in the order of the format", async () => {
    const { config, tensors } = await open(bytes);
    expect(config).toMatchObject({ hidden_size: 8, num_hidden_layers: 2, vocab_size: 20, tie_word_embeddings: true });
    expect((await tensors.read("model.layers.1.input_layernorm.weight")).data[0]).toBe(168);
    const q = (await tensors.read("model.layers.0.self_attn.q_proj.weight")).data;
    expect(Array.from({ length: 4 }, (_, row) => q[8 * row])).toEqual([176, 192, 184, 200]);
    expect((await tensors.read("model.norm.weight")).data[7]).toBe(floats - 64 - 1);
  });

  it("is refused when its sizes do not fit, or it is of another version", async () => {
    await expect(open(bytes.slice(0, -4))).rejects.toThrow(/its sizes need/);
    await expect(open(new Uint8Array(300))).rejects.toThrow(/is no model of llama2.c: sizes 0/);
    const huge = bytes.slice();
    huge.set(new Uint8Array(Int32Array.of(2 ** 30, 2 ** 30, 2 ** 30).buffer));
    await expect(open(huge)).rejects.toThrow(/1073741824 layers \(at most 4096\)/);
    const versioned = new Uint8Array(300);
    versioned.set(new Uint8Array(Uint32Array.of(0x616b3432, 2).buffer));
    await expect(open(versioned)).rejects.toThrow(/version 2 of llama2.c's format is not supported/);
  });
});
