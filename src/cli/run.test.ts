/** `lowbit run` and `lowbit chat` on a tiny program: what they print, and how they end. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, expect, test, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { json, tinyProgram } from "../../test/support/tiny-program.ts";
import { loadProgram } from "../index.ts";
import type { Terminal } from "./terminal.ts";

const { root, folder, program } = await tinyProgram();

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
    expect(stderr).toMatch(/^\(cut after 9 tokens, .*\)\nprompt: \d+ tokens, [\d.]+ tok\/s .*; generated: 9 tokens/);
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

  test("looks for computed prompts where one is long, or a folder is named", async () => {
    const long = join(root, "long");
    await writeTinyCheckpoint(long, { config: { max_position_embeddings: 512 } });
    vi.stubEnv("LOWBIT_CACHE", join(root, "cache"));
    const [kept, named] = [join(root, "cache", "prefixes"), join(root, "named")];
    const run = (...argv: string[]) => lowbit(["run", long, "-n", "1", ...argv]);
    const found = [];
    for (const argv of [["short"], ["zqxjk ".repeat(80)], ["short", "--cache-dir", named]]) {
      expect((await run(...argv)).code).toBe(0);
      found.push([existsSync(kept), existsSync(named)]);
    }
    vi.unstubAllEnvs();
    expect(found).toEqual([
      [false, false],
      [true, false],
      [true, true],
    ]);
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

  test("writes the same with drafts of a model, and refuses one with other tokens", async () => {
    const sampling = ["The quick", "-n", "40", "--temperature", "0.8", "--seed", "3", "--draft"];
    const { stdout } = await lowbit(["run", program, ...sampling, "off"]);
    const drafted = await lowbit(["run", program, ...sampling, program]);
    expect([drafted.code, drafted.stdout]).toEqual([0, stdout]);
    const other = join(root, "other");
    await writeTinyCheckpoint(other);
    const file = join(other, "tokenizer.json");
    const tokens = JSON.parse(readFileSync(file, "utf8"));
    tokens.added_tokens.push({ ...tokens.added_tokens[0], id: 9000, content: "<other>" });
    writeFileSync(file, JSON.stringify(tokens));
    const refused = await lowbit(["run", program, ...sampling, other]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(
      /draft: expected a model with the tokens of .*tiny.pte but .*other has \d+ tokens, not/,
    );
    const missing = await lowbit(["run", program, ...sampling, "nothing.pte"]);
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining(
        "--draft: expected lookup, mtp, off, a file, a folder or hf:org/name but found nothing.pte",
      ),
    ]);
  });

  test("keeps the prefix of a long prompt in a file, and says of a short one that nothing is kept", async () => {
    const file = join(root, "kept.lbsq");
    const long = "A quick brown fox jumps over the lazy dog. ";
    const short = await lowbit(["run", program, "The quick", "-n", "2", "--prefix", file]);
    expect([short.code, existsSync(file)]).toEqual([0, false]);
    expect(short.stderr).toContain(`(${file} is not written: prompt: expected`);
    const first = await lowbit(["run", program, long, "-n", "4", "--temperature", "0", "--prefix", file]);
    expect([first.code, existsSync(file)]).toEqual([0, true]);
    const second = await lowbit(["run", program, long, "-n", "4", "--temperature", "0", "--prefix", file]);
    expect([second.code, second.stdout]).toEqual([0, first.stdout]);
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
    const cut = "(cut after 6 tokens, the limit (maxTokens, --max-tokens))\n";
    expect([code, stdout, stderr]).toEqual([0, answers.map((text) => `${text}\n`).join(""), cut.repeat(2)]);
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
