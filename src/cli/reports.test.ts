/** `lowbit logits`, `inspect`, `kernels`, `bench` and `eval`: figures of a tiny checkpoint and program, and of a real model. */

import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { tinyShapes, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { json, tinyProgram } from "../../test/support/tiny-program.ts";
import { loadCheckpoint, loadCompiled } from "../index.ts";
import { addRmsNormOperator } from "../ops/norm.ts";

const { root, folder, program, output } = await tinyProgram();

describe("lowbit logits", () => {
  test("prints every float32 of the last position, compiled, eager and exported alike", async () => {
    const model = await loadCheckpoint(folder);
    const expected = [...(await (await loadCompiled(model)).createDecoder().prefill([276, 5, 6]))];
    await model.close();
    const { logits } = await json("logits", folder, "--ids", "276,5,6");
    expect(logits).toEqual(expected);
    expect((await json("logits", folder, "--ids", "276,5,6", "--eager")).logits).toEqual(expected);
    await lowbit(["quantize", folder, "-o", output]);
    expect((await json("logits", output, "--ids", "276,5,6")).logits).toEqual(expected);
  });

  test("takes quantization options", async () => {
    const options = ["--qmode", "8da4w", "--shared-embedding"];
    const { logits } = await json("logits", folder, "--ids", "276,5,6", ...options);
    expect((await json("logits", program, "--ids", "276,5,6")).logits).toEqual(logits);
    expect((await json("logits", folder, "--ids", "276,5,6", "--eager", ...options)).logits).toEqual(logits);
    expect((await json("logits", folder, "--ids", "276,5,6")).logits).not.toEqual(logits);
  });

  test("keeps keys and values of a program in the type asked for", async () => {
    const logits = async (type: string) => (await json("logits", program, "--ids", "276,5", "--kv-cache", type)).logits;
    expect(await logits("int8")).not.toEqual(await logits("f32"));
  });

  test("shows the largest with their text", async () => {
    const { stdout } = await lowbit(["logits", program, "--ids", "276,5,6", "--top", "3"]);
    const [title, , ...rows] = stdout.trimEnd().split("\n");
    expect(title).toBe("after 3 tokens, 3 largest of 282 logits:");
    const values = rows.map((row) => Number(row.trim().split(/\s+/)[1]));
    expect(values).toEqual([...values].sort((a, b) => b - a));
    const { logits } = (await json("logits", program, "--ids", "276,5,6")) as unknown as { logits: number[] };
    expect(values[0]).toBeCloseTo(Math.max(...logits), 4);
  });

  test("shows ids that only pad the vocabulary without text", async () => {
    const padded = join(root, "padded");
    const shapes = tinyShapes().set("model.embed_tokens.weight", [288, 32]);
    await writeTinyCheckpoint(padded, { config: { vocab_size: 288 }, shapes });
    const { code, stdout } = await lowbit(["logits", padded, "--ids", "276", "--top", "288"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ *287 +-?[\d.]+$/m);
  });

  test.each([
    [["--ids", "282"], "expected 0..281 but found 282"],
    [["--ids", Array(65).fill(1).join()], "expected at most 64 tokens but found 65"],
    [["--ids", Array(65).fill(1).join(), "--eager"], "expected 1 to 64 tokens at position 0 but found 65"],
  ])("refuses ids that the model cannot take", async (options, message) => {
    const { code, stderr } = await lowbit(["logits", folder, ...options]);
    expect([code, stderr]).toEqual([1, expect.stringContaining(message)]);
  });

  test("keeps keys and values in the type asked for, eager too", async () => {
    const logits = async (...options: string[]) =>
      (await json("logits", folder, "--ids", "276,5,6", "--kv-cache", "int8", ...options)).logits;
    const expected = await logits();
    expect(expected).not.toEqual((await json("logits", folder, "--ids", "276,5,6")).logits);
    expect(await logits("--eager")).toEqual(expected);
  });

  test("refuses --eager for a program", async () => {
    const { code, stderr } = await lowbit(["logits", program, "--ids", "1", "--eager"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("--eager needs a checkpoint folder")]);
  });
});

describe("lowbit inspect, kernels, bench, eval", () => {
  test("inspect shows what the file holds", async () => {
    const { code, stdout } = await lowbit(["inspect", program, "--verify"]);
    expect(code).toBe(0);
    expect(stdout).toContain(
      "method forward(i64 [1, 64] at most, i64 [64] at most, i64 [64] at most) → f32 [1, 64, 282]",
    );
    expect(stdout).toMatch(/model\.embed_tokens\.weight +panel16 +4 +\[282, 32\] +16 +i8 .* intact/);
    expect(stdout).toMatch(new RegExp(`total +${statSync(program).size}\n`));
  });

  test("inspect --graph shows a checkpoint's graph before and after the passes, and a program's as it is", async () => {
    const { stdout } = await lowbit(["inspect", folder, "--graph", "--qmode", "8da4w"]);
    const [before, after] = stdout.split("\n\nafter:\n") as [string, string];
    for (const operator of ["lowbit::gate.out", "lowbit::rope.out", "lowbit::update_and_attend.out", "aten::add.out"])
      expect([before.includes(`${operator}(`), after.includes(`= ${operator}(`)], operator).toEqual([true, false]);
    for (const operator of ["gate_halves", "rope_update_and_attend", addRmsNormOperator.name])
      expect(after).toContain(operator);
    const stored = await lowbit(["inspect", program, "--graph"]);
    expect(stored.stdout).toMatch(/^forward\(input0: i64\[<=1, \d+\]/);
    expect(stored.stdout).toContain("lowbit::rope_update_and_attend.out(");
  });

  test("inspect --verify fails for a damaged weight", async () => {
    const bytes = readFileSync(program);
    const at = bytes.indexOf("LBW1");
    bytes[at + 80]! ^= 1;
    writeFileSync(output, bytes);
    expect(await lowbit(["inspect", output])).toMatchObject({ code: 0 });
    const { code, stdout, stderr } = await lowbit(["inspect", output, "--verify"]);
    expect(code).toBe(1);
    expect(stdout).toContain("DAMAGED");
    expect(stderr).toContain("the checksum does not match for model.");
  });

  test("kernels lists rows for this CPU or another", async () => {
    const { stdout } = await lowbit(["kernels", "--cpu", "scalar"]);
    expect(stdout).toContain("CPU scalar\n");
    expect(stdout).toMatch(/linear_8bit_act_\{b\}bit_weight\.out +linear_a8_wx_1x1x1_reference .* any CPU +1x1 +yes/);
    const { rows } = (await json("kernels")) as unknown as { rows: { kernel: string }[] };
    expect(rows.some(({ kernel }) => kernel === "linear_a8_wx_1x1x1_reference")).toBe(true);
    expect(await lowbit(["kernels", "--cpu", "mmx"])).toMatchObject({ code: 1 });
    const text = await lowbit(["kernels", "--text", "rms_norm_f32_1x1x4_wasm_simd"]);
    expect(text.stdout).toMatch(/^\(module\n.*\(func \$rms_norm /s);
    expect((await lowbit(["kernels", "--text", "rms_norm"])).stderr).toContain("is no WebAssembly row");
  });

  test.each([
    ["neoverse-v2", "panel32"],
    ["avx2,avx_vnni", "panel16"],
  ])("quantize packs for %s in %s", async (cpu, layout) => {
    expect(await lowbit(["quantize", folder, "--qmode", "8da4w", "--cpu", cpu, "-o", output])).toMatchObject({
      code: 0,
    });
    const { weights } = (await json("inspect", output)) as unknown as { weights: { layout: string | null }[] };
    expect(new Set(weights.map((weight) => weight.layout ?? layout))).toEqual(new Set([layout]));
  });

  test("quantize refuses a CPU that it does not know", async () => {
    const { code, stderr } = await lowbit(["quantize", folder, "--qmode", "8da4w", "--cpu", "mmx", "-o", output]);
    expect([code, stderr]).toEqual([1, expect.stringContaining('CPU "mmx": expected features')]);
    expect(existsSync(output)).toBe(false);
  });

  test("kernels names no CPU whose features this one lacks", async () => {
    vi.stubEnv("LOWBIT_CPU", process.arch === "arm64" ? "zen4" : "neoverse-v2");
    const { stdout } = await lowbit(["kernels"]);
    vi.unstubAllEnvs();
    expect(stdout).toMatch(/^CPU scalar\n/);
  });

  test.each([
    ["a program", () => program],
    ["a checkpoint", () => folder],
  ])("bench measures %s", async (_, path) => {
    const sizes = ["--prompt-tokens", "8", "--decode-tokens", "2", "--runs", "2"];
    const report = await json("bench", path(), ...sizes);
    expect(report).toMatchObject({ model: path(), promptTokens: 8, decodeTokens: 2 });
    expect(report.fileBytes).toBe(path() === program ? statSync(program).size : null);
    expect(report.peakMemoryBytes).toBeGreaterThan(10e6);
    expect((await lowbit(["bench", path(), ...sizes])).stdout).toMatch(/decode, 2 tokens +[\d.]+ tok\/s/);
  });

  test("bench continues a text with drafts and without", async () => {
    const text = join(root, "repeated.txt");
    writeFileSync(text, "one two one two one two ");
    const sizes = ["--prompt-tokens", "8", "--decode-tokens", "16", "--runs", "2"];
    const { drafts } = await json("bench", program, ...sizes, "--text", text);
    expect(drafts).toMatchObject({ decodeTokens: 16, draftedRuns: { length: 2 }, plainRuns: { length: 2 } });
    const off = await json("bench", program, ...sizes, "--text", text, "--draft", "off");
    expect(off.drafts).toMatchObject({ draftedTokens: 0, acceptedTokens: 0 });
    const { stdout } = await lowbit(["bench", program, ...sizes, "--text", text]);
    expect(stdout).toMatch(/the same with drafts +[\d.]+ tok\/s/);
    expect(stdout).toMatch(/drafts +\d+ of \d+ tokens accepted/);
    const alone = await lowbit(["bench", program, ...sizes, "--draft", "lookup"]);
    expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining("expected --text file.txt")]);
  });

  test("eval scores a checkpoint and a program alike", async () => {
    const text = join(root, "text.txt");
    writeFileSync(text, "The quick brown fox jumps over the lazy dog.");
    const options = ["--text", text, "--window", "16", "--stride", "4"];
    const quantization = ["--qmode", "8da4w", "--shared-embedding"];
    const report = await json("eval", folder, ...options, ...quantization);
    expect(report).toMatchObject({ window: 16, stride: 4, bytes: 44 });
    const fromProgram = await lowbit(["eval", program, ...options, "--json"]);
    expect(fromProgram.stderr).toBe("");
    expect(JSON.parse(fromProgram.stdout).natsPerToken).toBeCloseTo(report.natsPerToken, 6);
    const { stdout } = await lowbit(["eval", folder, ...options]);
    expect(stdout).toMatch(/^scored \d+ tokens \(44 bytes\) of .* in \d+ windows of 16 tokens, stride 4\n/);
  });

  test("eval --against compares with a checkpoint as it is stored, and with a program", async () => {
    const text = join(root, "against.txt");
    writeFileSync(text, "The quick brown fox jumps over the lazy dog.");
    const options = ["--text", text, "--window", "16"];
    const report = await json("eval", program, ...options, "--against", folder);
    expect(report).toMatchObject({ against: folder, window: 16 });
    const { divergence } = report as unknown as { divergence: { mean: number; percentile99: number } };
    expect(divergence.mean).toBeGreaterThan(0);
    expect(divergence.percentile99).toBeGreaterThanOrEqual(divergence.mean);
    const { stdout } = await lowbit(["eval", folder, ...options, "--against", folder]);
    expect(stdout).toContain("KL divergence, nats/token: mean 0.00000 ± 0.00000,");
    expect(stdout).toContain("same likeliest token: 100.00 ± 0.00 %");
    expect(stdout).toContain("ratio 1.0000 ± 0.0000");
    const own = await json("eval", program, ...options, "--text", text, "--against", program);
    const bytes = statSync(program).size;
    expect(own).toMatchObject({ modelBytes: bytes, againstBytes: bytes, texts: [{ text }, { topAgreement: 1 }] });
  });
});

test("compare tells of several models, and draws them", async () => {
  const [text, svg] = [join(root, "compared.txt"), join(root, "chart.svg")];
  writeFileSync(text, "The quick brown fox jumps over the lazy dog.");
  const options = ["--text", text, "--window", "16", "--against", folder, "--svg", svg];
  const { models } = (await json("compare", program, folder, ...options)) as unknown as {
    models: { model: string; bytes: number; texts: { divergence: { mean: number; standardError: number } }[] }[];
  };
  expect(models.map(({ model }) => model)).toEqual([program, folder]);
  expect(models[0]!.bytes).toBe(statSync(program).size);
  const { divergence } = (await json(
    "eval",
    program,
    "--text",
    text,
    "--window",
    "16",
    "--against",
    folder,
  )) as unknown as {
    divergence: object;
  };
  expect(models[0]!.texts[0]!.divergence).toEqual(divergence);
  const drawn = readFileSync(svg, "utf8");
  expect(drawn.match(/<circle/g)).toHaveLength(2);
  expect(drawn).toContain(`<title>${program}: ${models[0]!.texts[0]!.divergence.mean}</title>`);
  const floats = (await json("compare", program, folder, ...options, "--activations", "float")) as unknown as object;
  expect(floats).toMatchObject({ models: [models[0], { model: folder }] });
  const alone = await lowbit(["compare", program, ...options, "--activations", "float"]);
  expect(alone.stderr).toContain("is a program, quantized when it was exported");
  const { code, stderr } = await lowbit(["compare", program, ...options.slice(0, -1), "chart.png"]);
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining('expected the name of an .svg file but found "chart.png"'),
  ]);
});

const stories = fileURLToPath(new URL("../../../shared/models/stories260K", import.meta.url));
describe.skipIf(!existsSync(stories))("on stories260K (skipped: ../shared is absent)", () => {
  test("logits and text are those of transformers", async () => {
    const { prompts } = JSON.parse(readFileSync(join(stories, "golden.json"), "utf8"));
    const [{ ids, last_logits: golden }] = prompts;
    const { logits } = (await json("logits", stories, "--ids", ids.join())) as unknown as { logits: number[] };
    expect(Math.max(...logits.map((logit, i) => Math.abs(logit - golden[i])))).toBeLessThan(1e-4);
  });
});
