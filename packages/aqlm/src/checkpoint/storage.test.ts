/** AQLM checkpoints: what is read, and what is refused with the name of the tensor. */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  cpuWith,
  InvalidFileError,
  inspectProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  quantize,
  ShapeError,
  UnsupportedError,
} from "lowbit";
import { describe, expect, it } from "vitest";
import { quantizedNames } from "../../../../src/formats/quantized/formats.ts";
import type { TensorEntry } from "../../../../src/formats/safetensors-writer.ts";
import type { FloatFormat } from "../../../../src/ops/weight.ts";
import { type TinyAqlm, writeAqlmCheckpoint } from "../../../../test/support/aqlm-checkpoint.ts";
import { lowbit } from "../../../../test/support/command-line.ts";
import { temporaryFolder } from "../../../../test/support/folders.ts";
import type { AqlmWeights } from "../form.ts";
import { dequantizeAqlm } from "../reference.ts";

const folder = await temporaryFolder();
let count = 0;

async function checkpoint(options: Partial<TinyAqlm> = {}): Promise<string> {
  const path = join(folder, String(count++));
  await writeAqlmCheckpoint(path, { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1, ...options });
  return path;
}

const q = "model.layers.0.self_attn.q_proj";

/** Replaces one tensor. */
const changed = (name: string, change: Partial<TensorEntry>) => (entries: TensorEntry[]) =>
  entries.map((entry) => (entry.name === name ? { ...entry, ...change } : entry));

/** Logits of a model on the reference kernels; of its AQLM weights as floats when `dequantized`. */
async function logits(path: string, dequantized = false): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  for (const { name, shape } of model.decoder.slots.filter((slot) => model.storedFormat(slot.name) === "aqlm")) {
    if (!dequantized) break;
    const data = dequantizeAqlm((await model.weight(name).load()) as AqlmWeights);
    const load = async () => ({ dtype: "f32", shape, data });
    model.replaceWeight(name, { name, shape, format: { kind: "float", dtype: "f32" } as FloatFormat, load });
  }
  const llm = await loadCompiled(model, { cpu: cpuWith("scalar") }).finally(() => model.close());
  return llm.createDecoder().prefill([1, 2, 3]);
}

describe("AQLM checkpoints", () => {
  it("decode as a loop over the stored integers does", async () => {
    for (const [codebooks, bits, inGroup, outGroup] of [
      [2, 8, 8, 1],
      [1, 12, 8, 2],
      [3, 5, 16, 4],
      [2, 8, 4, 1],
      [3, 5, 2, 2],
    ] as const) {
      const path = await checkpoint({ codebooks, bits, inGroup, outGroup });
      const model = await loadCheckpoint(path);
      const found = dequantizeAqlm((await model.weight(`${q}.weight`).load()) as AqlmWeights);
      const values = async (part: string) => (await model.checkpoint.tensors.read(`${q}.${part}`)).data;
      const [codes, vectors, scales] = [await values("codes"), await values("codebooks"), await values("scales")];
      const half = (h: number) => {
        const exponent = (h >> 10) & 31;
        const size = exponent === 0 ? (h & 1023) * 2 ** -24 : (1024 + (h & 1023)) * 2 ** (exponent - 25);
        return h & 0x8000 ? -size : size;
      };
      for (let row = 0; row < 32; row++)
        for (let column = 0; column < 32; column++) {
          const [output, group] = [Math.floor(row / outGroup), Math.floor(column / inGroup)];
          let sum = 0;
          for (let c = 0; c < codebooks; c++) {
            const stored = Number(codes[(output * (32 / inGroup) + group) * codebooks + c]);
            const code = stored < 0 ? stored + 2 ** bits : stored;
            const at = ((c * 2 ** bits + code) * outGroup + (row % outGroup)) * inGroup + (column % inGroup);
            sum += half(Number(vectors[at]));
          }
          expect(found[row * 32 + column]).toBeCloseTo(sum * half(Number(scales[output])), 6);
        }
      await model.close();
    }
  });

  it("may leave layers float, have tied heads and biases, or the config of the first releases", async () => {
    const paths = [
      await checkpoint({ plain: [q, "model.layers.1.mlp.down_proj"] }),
      await checkpoint({ config: { tie_word_embeddings: false, attention_bias: true } }),
      await checkpoint({ codebooks: 1, bits: 12, outGroup: 2, config: { attention_bias: true, mlp_bias: true } }),
    ];
    for (const path of paths) {
      const expected = await logits(path, true);
      const differences = (await logits(path)).map((value, i) => value - expected[i]!);
      expect(Math.hypot(...differences)).toBeLessThan(1e-5 * Math.hypot(...expected));
    }
    expect(await logits(await checkpoint({ field: "aqlm" }))).toEqual(await logits(await checkpoint()));
    expect(await logits(await checkpoint({ method: "AQLM" }))).toEqual(await logits(await checkpoint()));
  });

  it("are quantized to a program from the command line, and inspected", async () => {
    const path = await checkpoint();
    const out = join(folder, "out.pte");
    const result = await lowbit([
      "quantize",
      path,
      "--qmode",
      "aqlm-2x8",
      "--embedding",
      "4,32",
      "--head",
      "8da4w",
      "-o",
      out,
    ]);
    expect(result).toMatchObject({ code: 0 });
    const report = JSON.parse((await lowbit(["inspect", out, "--json", "--verify"])).stdout);
    const weight = report.weights.find(({ name }: { name: string }) => name === `${q}.weight`);
    expect(weight).toMatchObject({
      operators: ["aqlm::code2x8_lut_matmat.out"],
      layout: "aqlm_tiles8",
      shape: [32, 32],
      form: "aqlm 2x8, groups of 8",
      bits: 2,
      groupSize: 8,
      intact: true,
    });
    const row = (await lowbit(["inspect", out])).stdout.split("\n").find((line) => line.includes(`${q}.weight`));
    expect(row).toContain("aqlm 2x8, groups of 8");
    const wide = await checkpoint({ codebooks: 1, bits: 12, outGroup: 2 });
    expect(await lowbit(["quantize", wide, "-o", join(folder, "wide.pte")])).toMatchObject({ code: 0 });
    const { weights } = await inspectProgram(join(folder, "wide.pte"));
    const form = "aqlm 1x12, groups of 8 inputs by 2 outputs";
    expect(weights.find(({ name }) => name === `${q}.weight`)).toMatchObject({ form, bits: 0.75 });
    expect(weights.find(({ name }) => name === "model.norm.weight")).toMatchObject({ form: null, bits: 32 });
    // Codes of 32 outputs padded to 64, codebooks, scales.
    expect(weight.byteLength).toBe(64 + 64 * 4 * 2 + 2 * 256 * 8 * 2 + 32 * 2);
    const run = await lowbit(["logits", out, "--ids", "1,2,3", "--json"]);
    const direct = await lowbit([
      ...["logits", path, "--ids", "1,2,3", "--json", "--qmode", "aqlm-2x8", "--embedding", "4,32", "--head", "8da4w"],
    ]);
    expect(run.stdout).toBe(direct.stdout);
    const bytes = readFileSync(out);
    bytes[bytes.indexOf("LBA1") + 16]! ^= 1;
    await writeFile(join(folder, "damaged.pte"), bytes);
    const damaged = await loadProgram(join(folder, "damaged.pte"), { cpu: cpuWith("scalar") });
    await expect(damaged.createDecoder().prefill([1, 2, 3])).rejects.toThrow(
      /argument codes: the header's checksum does not match; the buffer is damaged \(of model.layers.0.\w+.\w+_proj.weight:codes/,
    );
    const again = await lowbit(["quantize", path, "--qmode", "aqlm-2x8", "--calibrate", "text.txt", "-o", out]);
    expect(again.stderr).toContain("has aqlm-2x8 weights already, which no text changes");
  });

  it("of another form than the mode are refused", async () => {
    const result = await lowbit(["quantize", await checkpoint(), "--qmode", "aqlm-1x16", "-o", join(folder, "no.pte")]);
    expect(result.stderr).toContain("is stored as aqlm-2x8, not as aqlm-1x16");
    const model = await loadCheckpoint(await checkpoint());
    expect(() => quantize(model, [int8DynamicActivationIntxWeight({ bits: 4 })])).toThrow(
      /q_proj.weight: is stored as aqlm and is not quantized again/,
    );
    await model.close();
  });
});

describe("bad AQLM checkpoints", () => {
  const refuse = async (options: Partial<TinyAqlm>, message: RegExp | string) =>
    expect(loadCheckpoint(await checkpoint(options))).rejects.toThrow(message);

  it("lack a tensor", async () => {
    for (const part of ["codes", "codebooks", "scales"])
      await refuse(
        { edit: (entries) => entries.filter(({ name }) => name !== `${q}.${part}`) },
        `expected tensor ${q}.${part}`,
      );
  });

  it("have codes for what is no linear layer", async () => {
    const asCodes = (module: string) => (entries: TensorEntry[]) =>
      entries.map((entry) => (entry.name === `${module}.weight` ? { ...entry, name: `${module}.codes` } : entry));
    for (const [module, what] of [
      ["model.embed_tokens", "the embedding table"],
      ["model.norm", "a vector"],
    ] as const) {
      const path = await checkpoint({ edit: asCodes(module) });
      const expected = `${path}: expected tensor ${module}.weight, floats, for ${what} but found ${module}.codes: of AQLM, linear layers only are read`;
      await expect(loadCheckpoint(path)).rejects.toThrow(new UnsupportedError(expected));
      for (const options of [[], ["--embedding", "4,32"]]) {
        const { code, stderr } = await lowbit(["quantize", path, ...options, "-o", join(folder, "x.pte")]);
        expect([code, stderr]).toEqual([1, expect.stringContaining(expected)]);
      }
    }
  });

  it("are no embedding table when set by hand, either", async () => {
    const model = await loadCheckpoint(await checkpoint());
    const name = "model.embed_tokens.weight";
    const weight = { ...model.weight(`${q}.weight`), name };
    expect(() => model.replaceWeight(name, weight)).toThrow(
      new ShapeError(`${name}: expected a weight of shape [282,32] but found [32,32]`),
    );
    model.replaceWeight(name, { ...weight, shape: [282, 32] });
    await expect(loadCompiled(model, { cpu: cpuWith("scalar") })).rejects.toThrow(
      new UnsupportedError(
        `${name}: expected an embedding table in a format whose rows are read but found format aqlm`,
      ),
    );
    await model.close();
  });

  it("have floats beside the codes of a layer", async () => {
    for (const module of [q, "model.embed_tokens"]) {
      const extra = (name: string, like: TensorEntry): TensorEntry => ({ ...like, name: `${module}.${name}` });
      const path = await checkpoint({
        edit: (entries) => {
          const other = module === q ? extra("weight", entries[0]!) : extra("codes", entries[0]!);
          return [...entries, other];
        },
      });
      await expect(loadCheckpoint(path)).rejects.toThrow(
        new InvalidFileError(
          path,
          `expected one of the tensors ${module}.codes and ${module}.weight, which both give the weight, but found both`,
        ),
      );
    }
  });

  it("are of another method, which is named", async () => {
    const renamed = (entries: TensorEntry[]) =>
      entries
        .filter(({ name }) => !name.endsWith(".codebooks"))
        .map((entry) => ({ ...entry, name: entry.name.replace(/\.codes$/, ".qweight") }));
    const known = ["AQLM", "TorchAO", ...quantizedNames, "weights as floats"].join(" or ");
    const quip = await checkpoint({ method: "quip", edit: renamed });
    await expect(loadCheckpoint(quip)).rejects.toThrow(
      new UnsupportedError(
        `${quip}/config.json: quantization_config.quant_method: expected ${known} but found "quip" (${quip}: expected tensor ${q}.weight, which the checkpoint lacks; it has ${q}.qweight, ${q}.scales)`,
      ),
    );
    const higgs = await checkpoint({
      method: "higgs",
      plain: [q],
      edit: changed(`${q}.weight`, { dtype: "i16", shape: [32, 8], data: async () => new Int16Array(256) }),
    });
    await expect(loadCheckpoint(higgs)).rejects.toThrow(
      `quant_method: expected ${known} but found "higgs" (${higgs}, tensor ${q}.weight: expected shape [32,32] by the config but found [32,8])`,
    );
    const vptq = await checkpoint({ method: "vptq" });
    await expect(loadCheckpoint(vptq)).rejects.toThrow(
      `${vptq}/config.json: quantization_config.quant_method: expected "aqlm" for tensor ${q}.codes but found "vptq"`,
    );
    const unnamed = await checkpoint({ field: "aqlm", edit: renamed });
    await expect(loadCheckpoint(unnamed)).rejects.toThrow(
      new InvalidFileError(
        unnamed,
        `expected tensor ${q}.weight, which the checkpoint lacks; it has ${q}.qweight, ${q}.scales`,
      ),
    );
  });

  it("have codebooks or scales that are not finite", async () => {
    const at = (values: ArrayLike<number>, index: number, value: number) =>
      Uint16Array.from(values, (old, i) => (i === index ? value : old));
    const cases: [string, number, number, string][] = [
      ["codebooks", 100, 0x7c00, "Infinity at 100"],
      ["codebooks", 4095, 0xfe01, "NaN at 4095"],
      ["scales", 31, 0xfc00, "-Infinity at 31"],
    ];
    for (const [part, index, value, found] of cases) {
      const edit = (entries: TensorEntry[]) =>
        entries.map((entry) => {
          if (entry.name !== `${q}.${part}`) return entry;
          return { ...entry, data: async () => at((await entry.data()) as Uint16Array, index, value) };
        });
      const path = await checkpoint({ edit });
      await expect(loadCheckpoint(path)).rejects.toThrow(
        new InvalidFileError(path, `tensor ${q}.${part}: expected finite numbers but found ${found}`),
      );
    }
    const bf16 = changed(`${q}.scales`, { dtype: "bf16", data: async () => new Uint16Array(32).fill(0x7f80, 3) });
    await refuse({ edit: bf16 }, `tensor ${q}.scales: expected finite numbers but found Infinity at 3`);
  });

  it("have tensors of other sizes or types", async () => {
    const cases: [string, Partial<TensorEntry>, string][] = [
      ["codes", { shape: [32, 2, 4] }, "codes: expected shape [32,4,2] but found [32,2,4]"],
      ["codes", { shape: [4, 32, 2] }, "the order that the aqlm package leaves them in"],
      [
        "codes",
        { dtype: "u8", data: async () => new Uint8Array(256) },
        "codes: expected dtype i8 or i16 or i32 for 8 bits but found u8",
      ],
      ["codebooks", { shape: [1, 512, 1, 8] }, "codebooks: expected shape [2,256,1,8] from config.json"],
      ["scales", { shape: [16, 2, 1, 1] }, "scales: expected shape [32, 1, 1, 1] but found [16,2,1,1]"],
      [
        "scales",
        { dtype: "i16", data: async () => new Int16Array(32) },
        "scales: expected dtype f16, bf16 or f32 but found i16",
      ],
    ];
    for (const [part, change, message] of cases) await refuse({ edit: changed(`${q}.${part}`, change) }, message);
  });

  it("have codes out of range", async () => {
    const data = async () => new Int8Array(32 * 4 * 2).fill(16, 5, 6);
    const path = await checkpoint({ bits: 5, edit: changed(`${q}.codes`, { data }) });
    await expect(logits(path)).rejects.toThrow(`tensor ${q}.codes: expected 5-bit codes, -16..15, but found 16 at 5`);
  });

  it("are of a variant that is not known", async () => {
    await refuse({ codebooks: 17, bits: 2 }, /num_codebooks of 1..16 but found 17/);
    const config = { hidden_size: 48, intermediate_size: 96, head_dim: 12 };
    await refuse({ codebooks: 1, inGroup: 12, config }, /in_group_size divisible by 8 but found 12/);
  });

  it("have a config without numbers", async () => {
    const path = await checkpoint();
    const file = join(path, "config.json");
    await writeFile(file, readFileSync(file, "utf8").replace('"num_codebooks":2', '"num_codebooks":"two"'));
    await expect(loadCheckpoint(path)).rejects.toThrow(
      new InvalidFileError(file, 'num_codebooks: expected a whole number but found "two"'),
    );
  });

  it("are named by file and tensor", async () => {
    const path = await checkpoint({ edit: changed(`${q}.codes`, { shape: [32, 2, 4] }) });
    const { code, stderr } = await lowbit(["inspect", path]);
    expect(code).not.toBe(0);
    expect(readFileSync(join(path, "config.json"), "utf8")).toContain("aqlm");
    expect((await lowbit(["quantize", path, "-o", join(folder, "x.pte")])).stderr).toContain(
      `${path}, tensor ${q}.codes`,
    );
    expect(stderr).not.toBe("");
  });
});
