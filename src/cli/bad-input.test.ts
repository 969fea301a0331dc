/** Damaged files and impossible wishes: each a clear message, exit code 1 or 2, and no output file. */
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { tinyShapes, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-bad-"));
const good = join(root, "good");
const bad = join(root, "bad");
const goodProgram = join(root, "good.pte");
const badProgram = join(root, "bad.pte");
const target = join(root, "target");
const output = join(target, "out.pte");
beforeAll(async () => {
  await writeTinyCheckpoint(good);
  expect((await lowbit(["quantize", good, "--qmode", "8da4w", "-o", goodProgram])).code).toBe(0);
});
beforeEach(() => {
  rmSync(bad, { recursive: true, force: true });
  rmSync(target, { recursive: true, force: true });
  cpSync(good, bad, { recursive: true });
  writeTarget();
});
afterAll(() => rmSync(root, { recursive: true }));

function writeTarget(): void {
  cpSync(join(good, "config.json"), join(target, "keep.json"));
}

/** The command fails with a message, without a stack, and writes nothing. */
async function expectFailure(argv: readonly string[], message: string | RegExp): Promise<void> {
  const { code, stdout, stderr } = await lowbit(argv);
  expect([1, 2]).toContain(code);
  expect(stdout).toBe("");
  expect(stderr).toMatch(message);
  expect(stderr).toMatch(/^lowbit: /m);
  expect(stderr).not.toMatch(/\n +at /);
  expect(readdirSync(target)).toEqual(["keep.json"]);
}

const weights = join(bad, "model.safetensors");

function changeHeader(
  change: (header: Record<string, { dtype: string; shape: number[]; data_offsets: number[] }>) => void,
) {
  const bytes = readFileSync(weights);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + length));
  change(header);
  const text = Buffer.from(JSON.stringify(header).padEnd(length));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(weights, Buffer.concat([prefix, text, bytes.subarray(8 + length)]));
}

function changeConfig(fields: object): void {
  const config = JSON.parse(readFileSync(join(bad, "config.json"), "utf8"));
  writeFileSync(join(bad, "config.json"), JSON.stringify({ ...config, ...fields }));
}

describe("a bad checkpoint", () => {
  const norm = "model.norm.weight";
  const cases: [what: string, damage: () => unknown, message: string | RegExp][] = [
    ["no folder", () => rmSync(bad, { recursive: true }), `${bad}: no such file or folder`],
    ["no weights", () => rmSync(weights), "expected weights in model.safetensors"],
    ["no config", () => rmSync(join(bad, "config.json")), "expected config.json"],
    ["truncated weights", () => writeFileSync(weights, readFileSync(weights).subarray(0, -1000)), weights],
    ["a weight file cut in its header", () => writeFileSync(weights, readFileSync(weights).subarray(0, 50)), weights],
    ["an empty weight file", () => writeFileSync(weights, ""), weights],
    [
      "a header length beyond the file",
      () => {
        const bytes = readFileSync(weights);
        bytes.writeBigUInt64LE(1n << 40n, 0);
        writeFileSync(weights, bytes);
      },
      /model\.safetensors: .*header/,
    ],
    [
      "offsets beyond the file",
      () => changeHeader((header) => header[norm]!.data_offsets.splice(0, 2, 0, 2 ** 40)),
      weights,
    ],
    ["overlapping offsets", () => changeHeader((header) => header[norm]!.data_offsets.splice(0, 2, 0, 128)), weights],
    [
      "a wrong shape",
      () => writeTinyCheckpoint(bad, { shapes: tinyShapes().set(norm, [16]) }),
      /tensor model\.norm\.weight: expected shape \[32\] by the config but found \[16\]/,
    ],
    [
      "a wrong dtype",
      () => changeHeader((header) => Object.assign(header[norm]!, { dtype: "I32" })),
      /tensor model\.norm\.weight: expected dtype f32, f16, bf16 but found i32/,
    ],
    [
      "a missing tensor",
      () => writeTinyCheckpoint(bad, { shapes: new Map([...tinyShapes()].filter(([name]) => name !== norm)) }),
      "expected tensor model.norm.weight",
    ],
    [
      "an unknown architecture",
      () => changeConfig({ architectures: ["MambaForCausalLM"] }),
      "architecture MambaForCausalLM is not supported, only LlamaForCausalLM",
    ],
    ["a config that is no JSON", () => writeFileSync(join(bad, "config.json"), "{"), /config\.json: .*not valid JSON/],
    ["a config without sizes", () => changeConfig({ hidden_size: "many" }), /hidden_size: expected .* found "many"/],
    [
      "a negative size",
      () => changeConfig({ num_hidden_layers: -1 }),
      "num_hidden_layers: expected a positive integer",
    ],
  ];
  test.each(cases)("%s", async (_, damage, message) => {
    await damage();
    await expectFailure(["quantize", bad, "--qmode", "8da4w", "-o", output], message);
    await expectFailure(["logits", bad, "--ids", "1"], message);
  });

  test("logits that are NaN are refused", async () => {
    const edit = (name: string, values: Float32Array) => name.includes("up_proj") && values.fill(Number.NaN);
    await writeTinyCheckpoint(bad, { edit });
    for (const how of [[], ["--json"], ["--eager"]])
      await expectFailure(
        ["logits", bad, "--ids", "1", ...how],
        "bad: logits: expected finite numbers or -Infinity but found NaN at id 0",
      );
  });

  test("a tokenizer that is no JSON is found when text is needed", async () => {
    writeFileSync(join(bad, "tokenizer.json"), "[");
    await expectFailure(["run", bad, "a"], /tokenizer\.json.*JSON/);
  });
});

describe("impossible options", () => {
  test.each([
    [["--qmode", "8da9w"], 'unknown qmode "8da9w"; known are 8da{1..8}w'],
    [["--qmode", "int4"], 'unknown qmode "int4"'],
    [["--qmode", "8da4w", "--group-size", "0"], "group size must be a whole number of at least 1"],
    [["--qmode", "8da4w", "--group-size", "many"], "group size must be a whole number"],
    [["--embedding", "9,32"], /expected <bits 1\.\.8>.*got bits "9"/],
    [["--shared-embedding", "4,0"], "group size must be"],
    [["--embedding", "4,32", "--shared-embedding", "4,32"], "expected one embedding configuration"],
    [["--qmode", "8da4w", "--mapping-type", "diagonal"], "Allowed choices are symmetric"],
    [["--qmode", "8da4w", "--algorithm", "hqq_scale_only", "--mapping-type", "asymmetric"], "hqq_scale_only"],
    [["--qmode", "8da4w", "--layout", "torchao_universal", "--scale-dtype", "f16"], "scales must be f32"],
    [["--qmode", "8da4w", "--layout", "torchao_universal", "--group-size", "12"], "multiple of 16"],
    [
      ["--target", "executorch", "--max-context-len", "65"],
      "maxContextLen: expected a whole number from 1 to 64 but found 65",
    ],
    [["--max-context-len", "64"], "--max-context-len goes with --target executorch"],
    [["--max-seq-len", "0"], "maxSeqLen: expected a whole number from 1 to 64 but found 0"],
    [["--recipe", "no-such-recipe.json"], "no-such-recipe.json: the recipe cannot be read"],
  ])("%j", async (options, message) => {
    await expectFailure(["quantize", good, "-o", output, ...options], message);
  });

  test("a shared embedding of a model whose head has weights of its own", async () => {
    await writeTinyCheckpoint(bad, {
      config: { tie_word_embeddings: false },
      shapes: tinyShapes().set("lm_head.weight", [282, 32]),
    });
    const argv = ["quantize", bad, "-o", output, "--qmode", "8da4w", "--shared-embedding"];
    await expectFailure(argv, "the lm_head of bad has weights of its own");
  });

  test("a recipe that is no recipe", async () => {
    const recipe = join(root, "recipe.json");
    writeFileSync(recipe, '{"lm_head": {"kind": "int5"}}');
    await expectFailure(["quantize", good, "-o", output, "--recipe", recipe], /recipe\.json: "lm_head": kind must be/);
  });

  test("a place that cannot be written", async () => {
    const nowhere = join(target, "absent", "out.pte");
    await expectFailure(["quantize", good, "-o", nowhere], `${nowhere}: cannot be written`);
    await expectFailure(["quantize", good, "-o", target], `${target}: expected a file to write but found a directory`);
    const keep = join(target, "keep.json");
    const folder = `${keep}: expected a folder to write to but found a file`;
    await expectFailure(["quantize", good, "--format", "torchao", "-o", keep], folder);
    await expectFailure(["bundle", goodProgram, "-o", keep], folder);
    expect(existsSync(target)).toBe(true);
  });
});

test("a place that cannot be written is found before the work", async () => {
  const empty = join(root, "empty.txt");
  writeFileSync(empty, "");
  for (const options of ["--qmode aqlm-1x2", "--qmode 8da4w --algorithm gptq"]) {
    const nowhere = join(target, "absent", "out.pte");
    const argv = [...options.split(" "), "--calibrate", empty, "-o"];
    await expectFailure(["quantize", good, ...argv, nowhere], `${nowhere}: cannot be written: ENOENT`);
    await expectFailure(["quantize", good, ...argv, target], "expected a file to write but found a directory");
  }
  const trace = join(target, "absent", "trace.json");
  await expectFailure(["run", goodProgram, "a", "--trace", trace], `${trace}: cannot be written: ENOENT`);
});

describe("a bad program", () => {
  const rename = (bytes: Buffer, from: string, to: string) => {
    for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + 1)) bytes.write(to, at);
  };
  const cases: [what: string, damage: (bytes: Buffer) => Buffer, message: string | RegExp][] = [
    ["cut in its weights", (bytes) => bytes.subarray(0, bytes.length >> 1), badProgram],
    ["cut in its tables", (bytes) => bytes.subarray(0, 100), badProgram],
    ["of no bytes", () => Buffer.alloc(0), badProgram],
    ["of other bytes", () => Buffer.from("this is no program at all, only some text"), badProgram],
    [
      "with a wrong identifier",
      (bytes) => {
        bytes.write("ET99", 4);
        return bytes;
      },
      /bad\.pte: .*ET12/,
    ],
    [
      "with an unknown operator",
      (bytes) => {
        rename(bytes, "lowbit::gate_halves", "lowbit::late_halves");
        return bytes;
      },
      "unknown operators lowbit::late_halves.out; register them",
    ],
  ];
  test.each(cases)("%s", async (_, damage, message) => {
    writeFileSync(badProgram, damage(readFileSync(goodProgram)));
    await expectFailure(["logits", badProgram, "--ids", "1"], message);
    await expectFailure(["run", badProgram, "a"], message);
    if (!String(message).includes("operator")) await expectFailure(["inspect", badProgram], message);
  });

  test("that is not there", async () => {
    const absent = join(root, "absent.pte");
    for (const argv of [
      ["run", absent, "a"],
      ["inspect", absent],
      ["bench", absent],
      ["chat", absent],
    ])
      await expectFailure(argv, `${absent}: no such file`);
  });

  test("prompts longer than the context", async () => {
    const long = "word ".repeat(100);
    await expectFailure(["run", goodProgram, long], /prompt: \d+ tokens do not fit the context length of 64/);
    await expectFailure(["bench", goodProgram], "128 + 32 tokens do not fit the context length of 64");
    await expectFailure(
      ["eval", goodProgram, "--text", join(good, "config.json"), "--window", "65"],
      "window: expected",
    );
  });

  test.each([
    [["--temperature", "-1"], "temperature: expected a number from 0"],
    [["--top-p", "1.5"], "topP: expected a number from 0 to 1"],
    [["--logit-bias", "282=1"], "logitBias: expected ids below 282 but found 282"],
    [["--stop-token", "5", "--stop-token", "282"], "stopTokens: expected ids below 282 but found 282"],
  ])("sampling out of range: %j", async (options, message) => {
    await expectFailure(["run", goodProgram, "a", ...options], message);
  });

  test("a text that is missing or no UTF-8", async () => {
    await expectFailure(["eval", goodProgram, "--text", join(root, "absent.txt")], "absent.txt: no such file");
    await expectFailure(["eval", goodProgram, "--text", goodProgram], "expected UTF-8 text");
    const calibrated = ["quantize", good, "--qmode", "8da4w", "--smoothquant", "-o", output, "--calibrate"];
    await expectFailure([...calibrated, goodProgram], `${goodProgram}: expected UTF-8 text`);
    await expectFailure(
      [...calibrated, join(good, "config.json"), "--calibration-tokens", "0"],
      "tokens of the text: expected a whole number from 1 but found 0",
    );
  });
});
