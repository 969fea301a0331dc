/** The commands on a tiny checkpoint: what they print, what they write, how they end. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { tinyShapes, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint, loadCompiled, loadProgram } from "../index.ts";
import { layouts } from "../kernels/layout/packed.ts";
import type { Terminal } from "./terminal.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-cli-"));
const folder = join(root, "tiny");
const program = join(root, "tiny.pte");
const output = join(root, "out.pte");
const layoutNames = layouts.map(({ name }) => name);
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  expect((await lowbit(["quantize", folder, "--qmode", "8da4w", "--shared-embedding", "-o", program])).code).toBe(0);
});
beforeEach(() => rmSync(output, { force: true }));
afterAll(() => rmSync(root, { recursive: true }));

/** Runs a command that must succeed, and parses what it prints. */
async function json(...argv: string[]): Promise<Record<string, never>> {
  const { code, stdout, stderr } = await lowbit([...argv, "--json"]);
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout.endsWith("\n")).toBe(true);
  return JSON.parse(stdout);
}

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
    ]) {
      expect(stdout).toContain(`  ${name} `);
      const help = await lowbit([name, "--help"]);
      expect([help.code, help.stdout]).toEqual([0, expect.stringMatching(/Examples:\n {2}\$ lowbit/)]);
    }
  });

  test.each([
    [[], "Usage: lowbit"],
    [["quantise"], "lowbit: unknown command 'quantise'\n(Did you mean quantize?)"],
    [["run", "x.pte", "--tempersture", "1"], "(Did you mean --temperature?)"],
    [["quantize", "x"], "lowbit: required option '-o, --output <path>' not specified"],
    [["run", "x.pte", "-n", "many"], 'Expected a whole number but found "many"'],
    [["run", "x.pte", "--seed", "9007199254740992"], 'Expected at most 9007199254740991 but found "9007199254740992"'],
    [["run", "x.pte", "--logit-bias", "7"], 'Expected id=bias but found "7"'],
    [["run", "x.pte"], "lowbit: give a prompt"],
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
    [["quantize", "x", "-o", "y", "--kv-cache", "int4"], "Allowed choices are f32, f16, int8"],
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
    [["--budget", "3bpw", "--head", "8da4w", "--calibrate", "text.txt"], "--budget needs --qmode"],
  ])("options that need a qmode say so: %j", async (options, message) => {
    const { code, stderr } = await lowbit(["quantize", folder, "-o", output, ...options]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  test.each([
    ["--max-seq-len", "3"],
    ["--max-context-len", "3"],
    ["--kv-cache", "f16"],
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
    ["--qmode 8da3w --group-size 16", ["panel16 3 16 f32 false", "panel16 3 16 f32 false", plain]],
    ["--qmode 8da3w --no-quantize-head", [null, "panel16 3 32 f32 false", plain]],
    ["--qmode wo5w --mapping-type asymmetric", ["panel16 5 32 f32 true", "panel16 5 32 f32 true", plain]],
    ["--qmode 8da4w --shared-embedding", [null, "panel16 4 32 f32 false", "panel16 4 32 f32 true"]],
    ["--qmode 8da4w --shared-embedding 8,axis,symmetric", [null, "panel16 4 32 f32 false", "panel16 8 32 f32 false"]],
    ["--shared-embedding 2,32", [null, plain, "panel16 2 32 f32 true"]],
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

describe("lowbit run", () => {
  async function generated(prompt: string, options: object): Promise<string> {
    let text = "";
    for await (const piece of (await loadProgram(program)).generate(prompt, options)) text += piece;
    return text;
  }

  test("streams the library's text and tells the speed on stderr", async () => {
    const text = await generated("The quick", { maxTokens: 9, temperature: 0.9, seed: 4, minP: 0.01 });
    const sampling = ["-n", "9", "--temperature", "0.9", "--seed", "4", "--min-p", "0.01"];
    const { code, stdout, stderr } = await lowbit(["run", program, "-p", "The quick", ...sampling]);
    expect([code, stdout]).toEqual([0, `${text}\n`]);
    expect(stderr).toMatch(/^prompt: \d+ tokens, [\d.]+ tok\/s .*; generated: 9 tokens/);
    expect((await lowbit(["run", program, "The quick", ...sampling])).stdout).toBe(`${text}\n`);
    expect((await lowbit(["run", program, "-", ...sampling], { stdin: "The quick\n" })).stdout).toBe(`${text}\n`);
  });

  test("never cuts or pads a prompt, whatever tokenizer.json asks of an encoding", async () => {
    const cutting = join(root, "cutting");
    await writeTinyCheckpoint(cutting);
    const file = join(cutting, "tokenizer.json");
    const truncation = { max_length: 2, strategy: "LongestFirst", stride: 0 };
    const padding = { strategy: { Fixed: 9 }, direction: "Left", pad_id: 0, pad_token: "x", pad_type_id: 0 };
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, "utf8")), truncation, padding }));
    const error = vi.spyOn(console, "error").mockImplementation(() => {});
    vi.stubEnv("LOWBIT_LOG", "info");
    const { stats } = await json("run", cutting, "The quick", "-n", "1").finally(() => vi.unstubAllEnvs());
    expect(error.mock.calls.flat()).toContainEqual(expect.stringContaining("tokenizer.json: truncation and padding"));
    error.mockRestore();
    const { tokenizer } = await loadProgram(program);
    expect((stats as Record<string, number>).prompt_tokens).toBe(tokenizer.encode("The quick").length);
    expect(tokenizer.encode("The quick").length).toBeGreaterThan(2);
    const chat = ["chat", cutting, "-n", "1"];
    expect((await lowbit(chat, { stdin: "Hello\n" })).code).toBe(0);
  });

  test("prints one object with the fields of ExecuTorch's statistics", async () => {
    const result = await json("run", program, "The quick", "-n", "5", "--ignore-eos");
    expect(result.finish_reason).toBe("length");
    expect(result.text).toBe(await generated("The quick", { maxTokens: 5, ignoreEos: true }));
    const stats = result.stats as Record<string, number>;
    expect(stats).toMatchObject({ generated_tokens: 5, SCALING_FACTOR_UNITS_PER_SECOND: 1000 });
    const order = ["model_load_start_ms", "model_load_end_ms", "inference_start_ms", "prompt_eval_end_ms"];
    for (let i = 1; i < order.length; i++) expect(stats[order[i]!]).toBeGreaterThanOrEqual(stats[order[i - 1]!]!);
  });

  test("obeys stop tokens, biases and penalties", async () => {
    const biased = await json("run", program, "a", "-n", "3", "--logit-bias", "5=1000", "--logit-bias", "6=995");
    expect(biased.text).toBe((await loadProgram(program)).tokenizer.decode([5, 5, 5]));
    const argv = ["run", program, "a", "-n", "3", "--logit-bias", "5=1000", "--stop-token", "5"];
    expect(await json(...argv)).toMatchObject({ text: "", finish_reason: "stop" });
    const penalized = await json("run", program, "a", "-n", "2", "--logit-bias", "5=1000", "--logit-bias", "6=995", "--presence-penalty", "9"); // biome-ignore format: one line reads better
    expect(penalized.text).toBe((await loadProgram(program)).tokenizer.decode([5, 6]));
    const letter = (await loadProgram(program)).tokenizer.decode([5]);
    expect(await json("run", program, "a", "--logit-bias", "5=1000", "--stop", letter + letter)).toMatchObject({
      text: "",
      finish_reason: "stop",
      stop_string: letter + letter,
    });
  });

  test("runs a checkpoint with the options of quantize, and a program only without", async () => {
    const exported = await lowbit(["run", program, "The quick", "-n", "4"]);
    const quantization = ["--qmode", "8da4w", "--shared-embedding"];
    expect((await lowbit(["run", folder, "The quick", "-n", "4", ...quantization])).stdout).toBe(exported.stdout);
    const { code, stderr } = await lowbit(["run", program, "a", "--qmode", "8da4w"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("quantized when it was exported")]);
  });

  test("an interrupt ends the text", async () => {
    const watch = (terminal: Terminal) => {
      terminal.stdout._write = (_chunk, _encoding, done) => {
        terminal.interrupt();
        done();
      };
    };
    expect(await lowbit(["run", program, "a", "--ignore-eos"], { watch })).toEqual({
      code: 130,
      stdout: "",
      stderr: "",
    });
  });

  test("an interrupt ends the wait for a prompt", async () => {
    const watch = (terminal: Terminal) => setTimeout(() => terminal.interrupt(), 20);
    const { code } = await lowbit(["run", program, "-"], { watch, stdin: new Readable({ read() {} }) });
    expect(code).toBe(130);
  });
});

describe("lowbit chat", () => {
  test("answers a line at a time and keeps the conversation", async () => {
    const llm = await loadProgram(program);
    const conversation = llm.createConversation();
    conversation.reset("Be brief.");
    const answers: string[] = [];
    for (const line of ["Hello", "And then?"]) {
      let text = "";
      for await (const piece of conversation.send(line, { maxTokens: 6 })) text += piece;
      answers.push(text);
    }
    const argv = ["chat", program, "-n", "6", "--system", "Be brief."];
    const { code, stdout, stderr } = await lowbit(argv, { stdin: "Hello\n\nAnd then?\n" });
    expect([code, stdout, stderr]).toEqual([0, answers.map((text) => `${text}\n`).join(""), ""]);
    const again = await lowbit(argv, { stdin: "And then?\n/reset\nHello\n/exit\nignored\n" });
    expect(again.stdout.split("\n").slice(1).join("\n")).toBe(`${answers[0]}\n`);
  });

  test("knows /help, and what is no command", async () => {
    const { stdout, stderr } = await lowbit(["chat", program], { stdin: "/help\n/what\n" });
    expect(stdout).toBe("");
    expect(stderr).toContain("/reset  start over");
    expect(stderr).toContain("/what is no command");
  });

  test("Ctrl-C stops the answer; twice leaves", async () => {
    const stdin = new Readable({ read() {} });
    const watch = (terminal: Terminal) => {
      let count = 0;
      // At the first piece of the answer, then twice more, far enough apart to count.
      const write = terminal.stdout._write.bind(terminal.stdout);
      terminal.stdout._write = (chunk, encoding, done) => {
        if (count++ === 0) {
          terminal.interrupt();
          setTimeout(() => terminal.interrupt(), 300);
          setTimeout(() => terminal.interrupt(), 600);
        }
        write(chunk, encoding, done);
      };
    };
    stdin.push("Hello\n");
    const { code, stdout, stderr } = await lowbit(["chat", program, "--ignore-eos", "--temperature", "1"], {
      watch,
      stdin,
    });
    expect(code).toBe(130);
    expect(stdout.length).toBeLessThan(100);
    expect(stdout.endsWith("\n")).toBe(true);
    expect(stderr).toBe("");
  });

  test("sets limits of the chat template and the tokenizer", async () => {
    const ask = (...limits: string[]) =>
      lowbit(["chat", program, "-n", "1", ...limits.flatMap((limit) => ["--limit", limit])], { stdin: "Hello\n" });
    expect((await ask("template.steps=100000", "tokenizer.seconds=5")).code).toBe(0);
    const { code, stderr } = await ask("template.steps=1");
    expect([code, stderr]).toEqual([1, expect.stringContaining('takes more than 1 steps (limit "steps")')]);
    expect(await ask("template.step=1")).toMatchObject({ code: 2, stderr: expect.stringContaining("milliseconds") });
    expect(await ask("tokenizer.growth=0")).toMatchObject({ code: 2, stderr: expect.stringContaining("above 0") });
    expect(await ask("seconds=1")).toMatchObject({ code: 2, stderr: expect.stringContaining("tokenizer.NAME=number") });
  });

  test("says what a model without chat template can do", async () => {
    const bare = join(root, "bare");
    await writeTinyCheckpoint(bare);
    writeFileSync(join(bare, "tokenizer_config.json"), "{}");
    const { code, stderr } = await lowbit(["chat", bare], { stdin: "Hello\n" });
    expect([code, stderr]).toEqual([1, expect.stringContaining("has no chat template")]);
  });
});

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
    expect(stdout).toMatch(/model\.embed_tokens\.weight +panel16 +4 +\[282, 32\] +axis +f32 \+ zeros .* intact/);
    expect(stdout).toMatch(new RegExp(`total +${statSync(program).size}\n`));
  });

  test("inspect --graph shows a checkpoint's graph before and after the passes, and a program's as it is", async () => {
    const { stdout } = await lowbit(["inspect", folder, "--graph", "--qmode", "8da4w"]);
    const [before, after] = stdout.split("\n\nafter:\n") as [string, string];
    for (const operator of ["lowbit::swiglu.out", "lowbit::rope.out", "lowbit::update_and_attend.out", "aten::add.out"])
      expect([before.includes(`${operator}(`), after.includes(`= ${operator}(`)], operator).toEqual([true, false]);
    for (const operator of ["swiglu_halves", "rope_update_and_attend", "add_rms_norm"])
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
    expect(stdout).toContain("KL divergence, nats/token: mean 0.00000,");
    expect(stdout).toContain("same likeliest token: 100.00 %");
    expect((await lowbit(["eval", program, ...options, "--against", program])).stdout).toContain("100.00 %");
  });
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
