/** The encoder: how near it comes, that activations weigh errors, and that it goes on where it was interrupted. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  cpuWith,
  InvalidFileError,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  saveGguf,
} from "lowbit";
import { cholesky, matrix, solveCholesky } from "lowbit/extension/checkpoint";
import { describe, expect, it } from "vitest";
import { lowbit } from "../../../../test/support/command-line.ts";
import { temporaryFolder } from "../../../../test/support/folders.ts";
import { Random } from "../../../../test/support/random.ts";
import { writeTinyCheckpoint } from "../../../../test/support/tiny-checkpoint.ts";
import type { AqlmWeights } from "../form.ts";
import { dequantizeAqlm } from "../reference.ts";
import { encodeAqlm } from "./encode.ts";
import { encodeLayer } from "./layer.ts";

const folder = await temporaryFolder();
const form = { n: 96, k: 128, codebooks: 2, bits: 6, inGroup: 8, outGroup: 1 };

/** Numbers of a normal distribution, nearly: sums of twelve even ones. */
function normal(random: Random, length: number): Float32Array {
  return Float32Array.from(
    { length },
    () => Array.from({ length: 12 }, () => random.next()).reduce((a, b) => a + b) - 6,
  );
}

/** tr(E H E^T) / tr(W H W^T), with H = identity when there is none. */
function loss(weights: Float32Array, found: Float32Array, k: number, hessian: Float32Array | null): number {
  const size = (values: Float32Array) => {
    let total = 0;
    for (let row = 0; row < values.length; row += k)
      for (let i = 0; i < k; i++) {
        if (!hessian) total += values[row + i]! ** 2;
        else for (let j = 0; j < k; j++) total += values[row + i]! * hessian[i * k + j]! * values[row + j]!;
      }
    return total;
  };
  return size(weights.map((value, i) => value - found[i]!)) / size(weights);
}

describe("a layer", () => {
  const random = new Random(6);
  const { n, k } = form;
  const weights = normal(random, n * k).map((value, i) => value * (1 + (i % 7)) * 0.02);
  // Inputs that go together: each is a mixture of few.
  const mixing = normal(random, 12 * k);
  const hessian = new Float32Array(k * k);
  for (let i = 0; i < k; i++)
    for (let j = 0; j < k; j++) {
      for (let s = 0; s < 12; s++) hessian[i * k + j]! += mixing[s * k + i]! * mixing[s * k + j]!;
      if (i === j) hessian[i * k + j]! += 0.3;
    }

  it("comes nearer than rounding to as many bits, and nearer where activations are", async () => {
    const plain = dequantizeAqlm(await encodeLayer(form, matrix(n, k, weights), null));
    // Lloyd's best quantizer of 1.5 bits loses 0.19; the codebooks of a layer as small as this one fit it better.
    expect(loss(weights, plain, k, null)).toBeLessThan(0.19);
    const weighed = dequantizeAqlm(await encodeLayer(form, matrix(n, k, weights), matrix(k, k, hessian)));
    expect(loss(weights, weighed, k, hessian)).toBeLessThan(0.5 * loss(weights, plain, k, hessian));
  });

  it("may be as small or large as f32 numbers", async () => {
    const error = async (size: number) => {
      const values = weights.map((value) => value * size);
      return loss(values, dequantizeAqlm(await encodeLayer(form, matrix(n, k, values), null)), k, null);
    };
    const usual = await error(1);
    for (const size of [1e-35, 1e-20, 1e-8, 1e-5, 1e6, 1e8, 1e20, 1e35])
      expect(await error(size), `${size}`).toBeLessThan(1.01 * usual);
  });

  it("solves its equations", () => {
    const size = 9;
    const a = Float64Array.from({ length: size * size }, (_, i) => hessian[Math.floor(i / size) * k + (i % size)]!);
    const x = Float64Array.from({ length: size }, (_, i) => i - 3);
    const b = x.map((_, r) => x.reduce((sum, value, c) => sum + a[r * size + c]! * value, 0));
    solveCholesky(cholesky(a, size), size, b, 1);
    for (const [i, value] of b.entries()) expect(value).toBeCloseTo(x[i]!, 6);
  });
});

describe("a model", () => {
  const checkpoint = join(folder, "float");
  const q = "model.layers.0.self_attn.q_proj.weight";
  const mode = { codebooks: 2, bits: 4 };

  it("is encoded but for the head, and goes on where it was interrupted", async () => {
    await writeTinyCheckpoint(checkpoint);
    const whole = await loadCheckpoint(checkpoint);
    const text = "The quick brown fox jumps over the lazy dog.";
    await encodeAqlm(whole, { ...mode, calibrationText: text });
    expect(whole.storedFormat(q)).toBe("aqlm");
    expect(whole.storedFormat("lm_head.weight")).toBe(null);

    const parts = join(folder, "parts");
    const controller = new AbortController();
    const interrupted = await loadCheckpoint(checkpoint);
    const reports: number[] = [];
    const onProgress = (done: number, total: number) => {
      reports.push(done / total);
      if (done > total / 2) controller.abort(new Error("enough"));
    };
    const options = { ...mode, calibrationText: text, folder: parts };
    await expect(encodeAqlm(interrupted, { ...options, onProgress, signal: controller.signal })).rejects.toThrow(
      "enough",
    );
    expect(interrupted.storedFormat(q)).toBe(null);
    await interrupted.close();
    expect(reports).toEqual(reports.toSorted((a, b) => a - b));
    const finished = readdirSync(parts).length;
    expect(finished).toBeGreaterThan(5);
    expect(finished).toBeLessThan(14);
    // Within layers, too: three rounds without the text, then six steps with it.
    expect(new Set(reports).size).toBeGreaterThan(9 * finished);
    const resumed = await loadCheckpoint(checkpoint);
    await encodeAqlm(resumed, options);
    expect(readdirSync(parts).length).toBe(14);
    const load = async (model: typeof whole, name: string) => (await model.weight(name).load()) as AqlmWeights;
    for (const name of whole.decoder.slots.map((slot) => slot.name).filter((slot) => whole.storedFormat(slot)))
      expect(await load(resumed, name), name).toEqual(await load(whole, name));
    await whole.close();
    await resumed.close();
  });

  it("is encoded again where a part of an earlier run is damaged", async () => {
    await writeTinyCheckpoint(checkpoint);
    const parts = join(folder, "damaged-parts");
    const notices: string[] = [];
    const encode = async () => {
      const model = await loadCheckpoint(checkpoint);
      await encodeAqlm(model, { ...mode, folder: parts, onDamagedPart: (problem) => notices.push(problem) });
      await model.close();
    };
    const read = () => Promise.all(names.map((name) => readFile(join(parts, name))));
    await encode();
    const names = readdirSync(parts).toSorted();
    const before = await read();
    const writtenAt = (i: number) => statSync(join(parts, names[i]!)).mtimeMs;
    const kept = writtenAt(5);
    const damages: ((bytes: Buffer) => Buffer)[] = [
      (bytes) => bytes.subarray(0, bytes.length - 100),
      (bytes) => bytes.subarray(0, 100),
      () => Buffer.alloc(0),
      (bytes) => Buffer.alloc(bytes.length),
      (bytes) => Buffer.concat([bytes.subarray(0, -1), Buffer.of(bytes.at(-1)! ^ 1)]),
    ];
    for (const [i, damage] of damages.entries()) await writeFile(join(parts, names[i]!), damage(before[i]!));
    await encode();
    expect(notices).toHaveLength(damages.length);
    for (const name of names.slice(0, damages.length))
      expect(notices.filter((notice) => notice.includes(`${name}: `))).toHaveLength(1);
    expect(notices.find((notice) => notice.includes(`${names[4]}: `))).toContain("its checksum does not match");
    expect(await read()).toEqual(before);
    expect(writtenAt(5)).toBe(kept);
    await encode();
    expect(notices).toHaveLength(damages.length);
  });

  it("is encoded from the floats that low-bit weights stand for, not from codes", async () => {
    await writeTinyCheckpoint(checkpoint);
    const float = await loadCheckpoint(checkpoint);
    const gguf = join(folder, "low.gguf");
    quantize(float, [int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32, scaleDType: "f16" })]);
    await saveGguf(float, gguf);
    const low = await loadCheckpoint(gguf);
    expect(low.keptAsStored(q)).not.toBe(null);
    await encodeAqlm(float, mode);
    await encodeAqlm(low, mode);
    const values = async (model: typeof float) => dequantizeAqlm((await model.weight(q).load()) as AqlmWeights);
    const [one, other] = [await values(float), await values(low)];
    // Weights of 8 bits are off by less than codebooks of 16 vectors are.
    expect(loss(one, other, 32, null)).toBeLessThan(0.3);
    await expect(encodeAqlm(low, mode)).rejects.toThrow(
      `${q}: expected weights that are floats or integers with scales to encode as aqlm-2x4 but found aqlm`,
    );
    await float.close();
    await low.close();
  });

  it("has scales of f32 where f16 holds none, in parts of an earlier run, too", async () => {
    const path = join(folder, "small");
    const tiny = (name: string, values: Float32Array) => name === q && values.set(values.map((value) => value * 1e-20));
    await writeTinyCheckpoint(path, { edit: tiny });
    for (const run of ["encoded", "restored"]) {
      const model = await loadCheckpoint(path);
      await encodeAqlm(model, { ...mode, folder: join(folder, "small-parts") });
      const values = dequantizeAqlm((await model.weight(q).load()) as AqlmWeights);
      expect(Math.hypot(...values), run).toBeGreaterThan(1e-20);
      const llm = await loadCompiled(model, { cpu: cpuWith("scalar") }).finally(() => model.close());
      expect((await llm.createDecoder().prefill([1, 2])).every(Number.isFinite), run).toBe(true);
    }
  });

  it("is refused when weights are not finite", async () => {
    await writeTinyCheckpoint(checkpoint, { edit: (name, values) => name === q && values.fill(Number.NaN, 7, 8) });
    const model = await loadCheckpoint(checkpoint);
    await expect(encodeAqlm(model, mode)).rejects.toThrow(
      `${checkpoint}: tensor ${q}: expected finite weights to encode but found NaN at 7`,
    );
    expect(model.storedFormat("model.layers.0.self_attn.k_proj.weight")).toBe(null);
    await model.close();
  });

  it("is refused when scales are larger than f32 can hold", async () => {
    const path = join(folder, "large");
    const largest = (value: number) => Math.sign(value) * (2 - 2 ** -23) * 2 ** 127;
    await writeTinyCheckpoint(path, { edit: (name, values) => name === q && values.set(values.map(largest)) });
    const model = await loadCheckpoint(path);
    await expect(encodeAqlm(model, mode)).rejects.toThrow(
      `${path}: tensor ${q}: expected weights to encode that scales of f32 can hold but found larger ones`,
    );
    await model.close();
  });

  it("is refused before the first layer when a later one has no whole groups", async () => {
    const path = join(folder, "uneven");
    await writeTinyCheckpoint(path, { config: { intermediate_size: 36 } });
    const parts = join(folder, "uneven-parts");
    const model = await loadCheckpoint(path);
    await expect(encodeAqlm(model, { ...mode, folder: parts })).rejects.toThrow(
      "model.layers.0.mlp.down_proj.weight: expected in groups of 8 and out groups of 1 to divide [32, 36]",
    );
    expect(existsSync(parts)).toBe(false);
    await model.close();
  });

  it("is refused for a folder that cannot be", async () => {
    await writeTinyCheckpoint(checkpoint);
    const model = await loadCheckpoint(checkpoint);
    const file = join(checkpoint, "config.json");
    await expect(encodeAqlm(model, { ...mode, folder: file })).rejects.toThrow(
      new InvalidFileError(file, "expected a folder to write to but found a file"),
    );
    // Where Node's recursive mkdir tries for ever.
    if (process.platform === "linux")
      await expect(encodeAqlm(model, { ...mode, folder: "/proc/none/parts" })).rejects.toThrow(
        "/proc/none: cannot be written",
      );
    await model.close();
  });

  it("does not take the layers of another run for its own", async () => {
    await writeTinyCheckpoint(checkpoint);
    const parts = join(folder, "shared-parts");
    const [one, other] = [await loadCheckpoint(checkpoint), await loadCheckpoint(checkpoint)];
    await encodeAqlm(one, { ...mode, folder: parts });
    await encodeAqlm(other, { ...mode, folder: parts, calibrationText: "To be, or not to be." });
    await expect(one.weight(q).load()).rejects.toThrow(
      new InvalidFileError(
        join(parts, `${q}.safetensors`),
        `expected ${q} as it was encoded here but found it of other weights or options: another run writes to the folder`,
      ),
    );
    await other.weight(q).load();
    await one.close();
    await other.close();
  });

  it("is encoded from the command line", async () => {
    await writeTinyCheckpoint(checkpoint);
    const out = join(folder, "encoded.pte");
    const text = join(folder, "text.txt");
    await writeFile(text, "To be, or not to be, that is the question.");
    // What a power cut may leave.
    const part = join(`${out}.parts`, `${q}.safetensors`);
    await mkdir(`${out}.parts`);
    await writeFile(part, "");
    const options = ["--qmode", "aqlm-2x4", "--calibrate", text, "--head", "8da8w", "--embedding", "8,32"];
    const first = await lowbit(["quantize", checkpoint, ...options, "-o", out]);
    expect(first.code).toBe(0);
    expect(first.stderr).toContain(`encoding ${q} again: ${part}: `);
    expect(first.stdout).toContain("\nweights quantized: 16 f32; float: 5 f32\n");
    expect(existsSync(`${out}.parts`)).toBe(false);
    expect(await lowbit(["logits", out, "--ids", "1,2,3"])).toMatchObject({ code: 0 });
    const wide = await lowbit(["quantize", checkpoint, "--qmode", "aqlm-1x16", "-o", out]);
    expect(wide.stderr).toContain("aqlm-1x16: layers are encoded with at most 8 bits a code");
    const alone = await lowbit(["quantize", checkpoint, "--calibrate", text, "-o", out]);
    expect(alone.stderr).toContain("--calibrate needs something that looks at activations");
  });
});
