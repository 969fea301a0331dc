/** The table of commands, and `lowbit quantize`, on a tiny checkpoint: what they print, what they write, how they end. */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { json, tinyProgram } from "../../test/support/tiny-program.ts";
import { layouts } from "../kernels/layout/packed.ts";
import type { Terminal } from "./terminal.ts";

const { root, folder, program, output } = await tinyProgram();
const layoutNames = layouts.map(({ name }) => name);

describe("lowbit", () => {
  test("tells its version and its commands", async () => {
    const packageJson = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
    expect(await lowbit(["--version"])).toEqual({ code: 0, stdout: `${packageJson.version}\n`, stderr: "" });
    const { code, stdout } = await lowbit(["--help"]);
    expect(code).toBe(0);
    for (const name of [
      "quantize",
      "run",
      "chat",
      "serve",
      "batch",
      "logits",
      "inspect",
      "bundle",
      "kernels",
      "bench",
      "eval",
      "compare",
    ]) {
      expect(stdout).toContain(`  ${name} `);
      const help = await lowbit([name, "--help"]);
      expect([help.code, help.stdout]).toEqual([0, expect.stringMatching(/Examples:\n {2}\$ lowbit/)]);
    }
  });

  test.each([
    [[], "Usage: lowbit"],
    [["quantise"], 'lowbit: expected a command but found "quantise"; there are help, pull, quantize, run, chat'],
    [["run", "x.pte", "--tempersture", "1"], "(Did you mean --temperature?)"],
    [["quantize", "x"], "lowbit: required option '-o, --output <path>' not specified"],
    [["run", "x.pte", "-n", "many"], 'Expected a whole number but found "many"'],
    [["run", "x.pte", "--seed", "9007199254740992"], 'Expected at most 9007199254740991 but found "9007199254740992"'],
    [["run", "x.pte", "--logit-bias", "7"], 'Expected id=bias but found "7"'],
    [["run", "x.pte"], "lowbit: give a prompt"],
    [["nope"], 'lowbit: expected a command but found "nope"; there are help, pull, quantize, run, chat'],
    [["help", "nope"], 'lowbit: expected a command but found "nope"'],
    [["nope", "--help"], 'lowbit: expected a command but found "nope"'],
    [["serve", "x.pte", "--port", "99999"], 'Expected a port from 0 to 65535 but found "99999".'],
    [["run", "x.pte", "a", "-p", "b"], "not both"],
    [["logits", "x.pte", "--ids", "1,a"], 'Expected a whole number but found "a"'],
    [["quantize", "x", "-o", "y", "--qmode", "8da4w", "--recipe", "r.json"], "cannot be used with option '--qmode"],
    [["quantize", "x", "-o", "y", "--recipe", "r.json", "--no-quantize-head"], "with option '--no-quantize-head'"],
    [
      ["quantize", "x", "-o", "y", "--qmode", "8da4w", "--head", "8da2w", "--no-quantize-head"],
      "option '--head <mode>' cannot be used with option '--no-quantize-head'",
    ],
    [
      ["quantize", "x", "-o", "y", "--qmode", "8da4w", "--shared-embedding", "--no-quantize-head"],
      "option '--shared-embedding [bits,group[,mapping]]' cannot be used with option '--no-quantize-head'",
    ],
    [
      ["run", "x", "a", "--qmode", "8da4w", "--head", "8da2w", "--shared-embedding"],
      "option '--shared-embedding [bits,group[,mapping]]' cannot be used with option '--head <mode>'",
    ],
    [["inspect", "x.pte", "--threads", "2"], "unknown option '--threads'"],
    [["inspect", "x.pte", "--graph", "--verify"], "option '--verify' cannot be used with option '--graph'"],
    [["kernels", "--text", "k", "--json"], "option '--text <kernel>' cannot be used with option '--json'"],
    [
      ["kernels", "--text", "k", "--cpu", "scalar"],
      "option '--text <kernel>' cannot be used with option '--cpu <cpu>'",
    ],
    [["run", "x", "a", "--kv-cache", "int2"], "Allowed choices are f32, f16, int8, int4"],
    [["quantize", "x", "-o", "y", "--kv-cache", "f16"], "unknown option '--kv-cache'"],
    [
      ["quantize", "x", "-o", "y", "--layout", "panel16", "--cpu", "zen4"],
      "option '--cpu <cpu>' cannot be used with option '--layout <name>'",
    ],
    [
      ["quantize", "x", "-o", "y", "--target", "executorch", "--cpu", "zen4"],
      "--cpu does not go with --target executorch, whose layout is the same for every CPU",
    ],
    [["quantize", "x", "-o", "y", "--layout", "panel17"], `Allowed choices are ${layoutNames.join(", ")}`],
  ])("wrong usage has exit code 2: %j", async (argv, message) => {
    const { code, stdout, stderr } = await lowbit(argv);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  test.each([
    [["--group-size", "32"], "--group-size needs --qmode"],
    [["--no-quantize-head"], "--no-quantize-head needs --qmode"],
    [["--shared-embedding"], "--shared-embedding needs --qmode"],
    [["--layout", "panel16"], "--layout and --scale-dtype need"],
    [["--smoothquant", "--calibrate", "text.txt"], "--smoothquant needs --qmode"],
  ])("options that need a qmode say so: %j", async (options, message) => {
    const { code, stderr } = await lowbit(["quantize", folder, "-o", output, ...options]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  test.each([
    ["--max-seq-len", "3"],
    ["--max-context-len", "3"],
    ["--layout", "panel16"],
    ["--cpu", "zen4"],
    ["--target executorch", ""],
  ])("%s goes with programs only", async (flag, value) => {
    for (const format of ["gguf", "torchao"]) {
      const options = `--qmode 8da4w --format ${format} ${flag} ${value}`.trim().split(" ");
      const { code, stderr } = await lowbit(["quantize", folder, "-o", output, ...options]);
      const message = `${flag} does not go with --format ${format}, which writes no program: expected --format pte`;
      expect([code, stderr]).toEqual([2, `lowbit: ${message}\n`]);
      expect(existsSync(output)).toBe(false);
    }
  });

  test.each([
    ["run", folder, "a"],
    ["logits", folder, "--ids", "1", "--eager"],
    ["inspect", folder, "--graph"],
  ])("files of tensors go with programs only: %s", async (...argv) => {
    const { code, stderr } = await lowbit([...argv, "--data", "x.ptd"]);
    const message = `--data needs a program, which leaves tensors outside; ${folder} is a checkpoint`;
    expect([code, stderr]).toEqual([2, `lowbit: ${message}\n`]);
  });

  test("an error nobody expected shows its stack and has exit code 70", async () => {
    const stdin = new Readable({ read: () => stdin.destroy(new TypeError("a bug")) });
    const { code, stderr } = await lowbit(["run", program, "-"], { stdin });
    expect([code, stderr]).toEqual([70, expect.stringMatching(/TypeError: a bug\n +at /)]);
  });

  test("an output that nobody reads ends the command quietly", async () => {
    const broken = Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" });
    const watch = ({ stdout }: Terminal) => {
      stdout._write = (_chunk, _encoding, done) => done(broken);
    };
    expect(await lowbit(["inspect", program], { watch })).toMatchObject({ code: 0, stderr: "" });
    expect(await lowbit(["run", program, "a"], { watch })).toMatchObject({ code: 0, stderr: "" });
  });

  test.each([["inspect", program], ["run", program, "a"], ["kernels"]])(
    "an output that a full disk does not take is an error: %s",
    async (...argv) => {
      const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
      const watch = ({ stdout }: Terminal) => {
        stdout._write = (_chunk, _encoding, done) => done(full);
      };
      const { code, stderr } = await lowbit(argv, { watch });
      expect([code, stderr]).toEqual([1, `lowbit: standard output: cannot be written: ${full.message}\n`]);
    },
  );
});

describe("lowbit quantize", () => {
  test("writes a program and says how large it is", async () => {
    const { code, stdout, stderr } = await lowbit(["quantize", folder, "--qmode", "8da2w", "-o", output]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^wrote .*out\.pte: [\d.]+ kB, [\d.]+ bits per weight, in [\d.]+ s\n$/);
    const report = await json("quantize", folder, "--qmode", "8da2w", "-o", output);
    expect(report.bytes).toBe(statSync(output).size);
  });

  /** Bits, group size and layout of the head, of a linear layer and of the embedding. */
  async function formats(...options: string[]): Promise<unknown[]> {
    expect(await lowbit(["quantize", folder, "-o", output, ...options])).toMatchObject({ code: 0, stderr: "" });
    const { weights } = (await json("inspect", output)) as unknown as { weights: Record<string, unknown>[] };
    const show = (name: string) => {
      const weight = weights.find((candidate) => candidate.name === name);
      return weight
        ? `${weight.layout} ${weight.bits} ${weight.groupSize} ${weight.scaleType} ${weight.hasZeros}`
        : null;
    };
    return ["lm_head.weight", "model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"].map(show);
  }

  const plain = "null 32 null null false";
  test.each([
    ["", [null, plain, plain]],
    ["--qmode 8da3w --group-size 16", ["panel16 3 16 f16 false", "panel16 3 16 f16 false", plain]],
    ["--qmode 8da3w --no-quantize-head", [null, "panel16 3 16 i8 false", plain]],
    ["--qmode wo5w --mapping-type asymmetric", ["panel16 5 32 f16 true", "panel16 5 32 f16 true", plain]],
    ["--qmode 8da4w --shared-embedding", [null, "panel16 4 16 i8 false", "panel16 4 16 i8 false"]],
    ["--qmode 8da4w --group-size 32", ["panel16 4 32 f16 false", "panel16 4 32 f16 false", plain]],
    ["--qmode 8da4w --shared-embedding 8,axis,symmetric", [null, "panel16 4 16 i8 false", "panel16 8 32 f16 false"]],
    ["--qmode torchao:8da4w --shared-embedding", [null, "panel16 4 32 f32 false", "panel16 4 32 f32 true"]],
    ["--shared-embedding 2,32", [null, plain, "panel16 2 32 f16 false"]],
    ["--embedding 6,32", [null, plain, "torchao_embedding 6 32 f32 true"]],
    [
      "--qmode 8da4w --layout torchao_universal",
      ["torchao_universal 4 32 f32 false", "torchao_universal 4 32 f32 false", plain],
    ],
    [
      "--qmode 8da4w --group-size axis --algorithm hqq_scale_only --scale-dtype f32",
      ["panel16 4 32 f32 false", "panel16 4 64 f32 false", plain],
    ],
  ])("%s", async (options, expected) => {
    expect(await formats(...options.split(" ").filter(Boolean))).toEqual(expected);
  });

  test("takes configurations by module name from a recipe", async () => {
    const recipe = join(root, "recipe.json");
    const down = { kind: "int8DynamicActivationIntxWeight", bits: 3 };
    writeFileSync(recipe, JSON.stringify({ "re:.*down_proj": down, _default: null }));
    expect(await formats("--recipe", recipe)).toEqual([null, "panel16 3 32 f32 false", plain]);
  });

  test("takes the recipe that docs/quantization.md shows", async () => {
    const recipe = join(root, "page-recipe.json");
    const page = readFileSync(new URL("../../docs/quantization.md", import.meta.url), "utf8");
    writeFileSync(recipe, /^```json\n(.*?)^```$/ms.exec(page)![1]!);
    const expected = ["panel16 8 32 f32 false", "panel16 6 32 f32 false", "torchao_embedding 4 32 f32 true"];
    expect(await formats("--recipe", recipe)).toEqual(expected);
  });

  test("limits the lengths of the program", async () => {
    await lowbit(["quantize", folder, "-o", output, "--max-seq-len", "8"]);
    const { metadata } = await json("inspect", output);
    expect(metadata).toMatchObject({ get_max_seq_len: 8, get_max_context_len: 64, get_max_logit_rows: 8 });
    const lengths = ["--max-seq-len", "8", "--max-context-len", "16"];
    await lowbit(["quantize", folder, "-o", output, "--target", "executorch", ...lengths]);
    const { metadata: ofOther } = await json("inspect", output);
    expect(ofOther).toMatchObject({ get_max_seq_len: 8, get_max_context_len: 16 });
  });

  test("an interrupt leaves no file", async () => {
    const watch = (terminal: Terminal) => setImmediate(() => terminal.interrupt());
    expect(await lowbit(["quantize", folder, "--qmode", "8da4w", "-o", output], { watch })).toEqual({
      code: 130,
      stdout: "",
      stderr: "",
    });
    expect(readdirSync(root).filter((name) => name.startsWith("out"))).toEqual([]);
  });
});
