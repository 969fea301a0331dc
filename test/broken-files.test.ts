/** Programs that give other numbers, or take other inputs, than they should: errors are the file's and name it, on each backend. */
import { cpSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeSafetensors } from "../src/formats/safetensors-writer.ts";
import { openTensorFile } from "../src/formats/shards.ts";
import {
  type Cpu,
  cpuWith,
  evaluatePerplexity,
  exportProgram,
  hostCpu,
  InvalidArgumentError,
  InvalidFileError,
  type LanguageModel,
  loadCheckpoint,
  loadProgram,
  openFile,
  readProgram,
  saveProgram,
} from "../src/index.ts";
import { promptLogProbabilities } from "../src/language/prompt-log-probabilities.ts";
import type { Method } from "../src/program/program.ts";
import { lowbit } from "./support/command-line.ts";
import { temporaryFolder } from "./support/folders.ts";
import { post, servedApp, tinySource } from "./support/served.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const path = (name: string) => join(folder, name);
/** The greatest scale: sums of what it scales are infinite, and differences of these no numbers. */
const HUGE = 3e38;

async function exportOf(checkpoint: string, target: string): Promise<void> {
  const model = await loadCheckpoint(checkpoint);
  await exportProgram(model, target);
  await model.close();
}

/** The program with its method forward changed. */
async function changed(name: string, change: (method: Method) => Method): Promise<void> {
  const source = await openFile(path("whole.pte"));
  const program = await readProgram(source);
  const methods = program.methods.map((method) => (method.name === "forward" ? change(method) : method));
  await saveProgram({ ...program, methods }, path(name));
  await source.close();
}

beforeAll(async () => {
  await writeTinyCheckpoint(path("huge"), {
    edit: (name, values) => name === "model.norm.weight" && values.fill(HUGE),
  });
  await exportOf(path("huge"), path("huge.pte"));
  await writeTinyCheckpoint(path("whole"));
  await exportOf(path("whole"), path("whole.pte"));
  await changed("renamed.pte", (method) => ({ ...method, name: "other" }));
  await changed("shorter.pte", (method) => ({ ...method, inputs: method.inputs.slice(1) }));
  cpSync(join(import.meta.dirname, "../models/tiny-bge"), path("bge"), { recursive: true });
  const file = await openTensorFile(path("bge/model.safetensors"));
  const entries = await Promise.all(
    file.names.map(async (name) => {
      const { dtype, shape, data } = await file.read(name);
      const isLast = name.endsWith("output.LayerNorm.weight");
      return {
        name,
        dtype: dtype as "f32",
        shape,
        data: async () => (isLast ? new Float32Array(data.length).fill(HUGE) : (data as Float32Array)),
      };
    }),
  );
  await file.close();
  await writeSafetensors(path("bge/model.safetensors"), entries);
  await exportOf(path("bge"), path("bge.pte"));
}, 60_000);

const NUMBERS = /huge.pte: logits: expected (finite numbers or -Infinity|numbers) but found (NaN|Infinity)/;

const backends: [string, Cpu][] = [
  ["reference", cpuWith("")],
  ["WebAssembly", cpuWith("simd128")],
  ["this CPU", hostCpu()],
];

describe.each(backends)("%s", (_, cpu) => {
  const models: LanguageModel[] = [];
  const load = async (name: string) => {
    const model = await loadProgram(path(name), { cpu, threads: 1 });
    models.push(model);
    return model;
  };
  afterAll(async () => {
    for (const model of models) await model.dispose();
  });

  it("numbers that are not finite are the file's fault, in a text, its probabilities and perplexity, and over HTTP", async () => {
    const model = await load("huge.pte");
    const options = { maxTokens: 2, temperature: 1, seed: 1 };
    const text = (async () => {
      for await (const _ of model.generate("Hello", options)) expect.unreachable();
    })();
    await expect(text).rejects.toThrow(InvalidFileError);
    await expect(text).rejects.toThrow(NUMBERS);
    await expect(promptLogProbabilities(model, [1, 2, 3])).rejects.toThrow(NUMBERS);
    await expect(evaluatePerplexity(model, [1, 2, 3, 4])).rejects.toThrow(NUMBERS);
    await expect(evaluatePerplexity(model, [1, 2, 3, 4])).rejects.toThrow(InvalidFileError);
    const app = servedApp({ models: [tinySource(model)] });
    for (const [route, body] of [
      ["/v1/completions", { prompt: "Hello", max_tokens: 2 }],
      ["/v1/chat/completions", { messages: [{ role: "user", content: "Hello" }], max_tokens: 2 }],
    ] as const) {
      const { status, body: answer } = await post(app, route, { model: "tiny", ...body });
      expect([status, answer.error.type]).toEqual([500, "server_error"]);
    }
  });

  it("vectors that are not finite are, too", async () => {
    const model = await load("bge.pte");
    await expect(model.embed(["a", "b"])).rejects.toThrow(InvalidFileError);
    await expect(model.embed(["a"])).rejects.toThrow(
      /bge.pte: method embed: expected finite values but found NaN at 0/,
    );
  });

  it.each([
    ["renamed.pte", /renamed.pte: expected a method forward but found none/],
    ["shorter.pte", /shorter.pte: method forward: expected \d inputs but found \d/],
  ])("%s: other methods and inputs than its metadata promises are the file's fault", async (name, problem) => {
    // Programs may run when they are loaded, to be fast from then on.
    const logits = load(name).then((model) => model.createDecoder().prefill([1, 2]));
    await expect(logits).rejects.toThrow(InvalidFileError);
    await expect(logits).rejects.toThrow(problem);
  });
});

it("wrong inputs of a caller are the caller's, with the file's name", async () => {
  const { program } = await loadProgram(path("whole.pte"));
  const run = program.createSession().run("forward", []);
  await expect(run).rejects.toThrow(InvalidArgumentError);
  await expect(run).rejects.toThrow(/whole.pte: method forward: expected \d inputs but found 0/);
  await expect(program.createSession().run("none", [])).rejects.toThrow(/whole.pte: method none: expected one of/);
  await program.dispose();
});

it("commands name the file", async () => {
  for (const argv of [
    ["run", path("huge.pte"), "Hello", "-n", "2"],
    ["logits", path("huge.pte"), "--ids", "1,2"],
    ["embed", path("bge.pte"), "a"],
    ["logits", path("renamed.pte"), "--ids", "1,2"],
  ]) {
    const { code, stderr } = await lowbit(argv);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^lowbit: \S+\/(huge|bge|renamed)\.pte: /);
  }
});
