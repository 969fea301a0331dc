/** The modules that `lowbit bundle` writes: what is in them, how large they are, and that they run by themselves. */
import { execFile } from "node:child_process";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, posix, relative } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { beforeAll, describe, expect, it } from "vitest";
import { type Bundle, bundleProgram } from "../src/bundle/bundle.ts";
import { type Build, modulesWithStandIn, partOf, standIn } from "../src/bundle/modules.ts";
import { calledOperators, tableModule, traceSources } from "../src/bundle/selection.ts";
import { operators } from "../src/extension/index.ts";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import type { Program } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

/** Of a Llama of 4-bit weights and 8-bit activations, without a tokenizer. Pages of int4, which any program may have, take 2.5 kB of it. */
const GZIPPED_BYTES_MAX = 95_500;
const ids = [1, 7, 3, 9, 2];

const folder = await temporaryFolder();
const program = join(folder, "tiny.pte");
const output = join(folder, "bundle");
/** The same weights in TorchAO's layout. */
const torchaoProgram = join(folder, "torchao.pte");
const torchaoOutput = join(folder, "torchao-bundle");
let bundle: Bundle;
const sources = await traceSources(build as Build);

beforeAll(async () => {
  const checkpoint = join(folder, "tiny");
  await writeTinyCheckpoint(checkpoint, { config: { hidden_size: 64, intermediate_size: 96, head_dim: 16 } });
  const model = await loadCheckpoint(checkpoint);
  const four = { bits: 4, groupSize: 32 } as const;
  quantize(model, [int8DynamicActivationIntxWeight(four), sharedEmbedding(four)]);
  await exportProgram(model, program);
  const scales = { ...four, scaleDType: "f32" } as const;
  quantize(model, [int8DynamicActivationIntxWeight(scales), sharedEmbedding(scales)]);
  model.layout = "torchao_universal";
  await exportProgram(model, torchaoProgram);
  await model.close();
  bundle = await bundleProgram(program, output);
});

/** Runs a module in plain Node, in a folder of its own without node_modules. */
async function runAlone(text: string, modules = output, file = program): Promise<string> {
  const alone = join(folder, "alone");
  await mkdir(alone, { recursive: true });
  for (const name of await readdir(modules)) await copyFile(join(modules, name), join(alone, name));
  await writeFile(join(alone, "package.json"), '{ "type": "module" }');
  await writeFile(join(alone, "main.js"), text);
  const { stdout } = await promisify(execFile)(process.execPath, ["main.js", file], { cwd: alone });
  return stdout;
}

describe("a bundle", () => {
  it("is written where a path from the working folder says", async () => {
    const place = join(folder, "by a relative path");
    const { files } = await bundleProgram(program, relative(process.cwd(), place));
    expect(files.map(({ path }) => path)).toEqual([join(place, "lowbit.js"), join(place, "worker.js")]);
    expect((await readdir(place)).sort()).toEqual(["lowbit.js", "worker.js"]);
  });

  it("is small", () => {
    for (const { path, bytes, gzippedBytes } of bundle.files) {
      console.log(`bundle: ${path.slice(output.length + 1)} ${bytes} bytes, ${gzippedBytes} gzipped`);
      expect(gzippedBytes).toBeLessThanOrEqual(GZIPPED_BYTES_MAX);
    }
  });

  it("holds the operators that the program calls, and nothing that makes programs", () => {
    expect(bundle.operators).toContain("lowbit::linear_8bit_block_act.out");
    for (const { path, modules } of bundle.files) {
      expect(modules).toContain("runtime/session");
      expect(
        modules.filter((name) => /^(quantize|compile|model|formats|hub|text|aqlm|cli|server)\//.test(name)),
      ).toEqual([]);
      expect(
        modules.filter((name) => /^(ops\/(aten\/(?!shapes)|llama|int4)|kernels\/native\/known)/.test(name)),
        path,
      ).toEqual([]);
    }
  });

  it("leaves out operators of the same module that the program does not call", async () => {
    for (const { path, modules } of bundle.files) {
      expect(modules).toContain("ops/norm");
      const text = await readFile(path, "utf8");
      expect(text).toContain("lowbit::rms_norm.out(");
      expect(text).not.toContain("lowbit::layer_norm.out(");
    }
  });

  it("imports nothing", async () => {
    for (const { path } of bundle.files) {
      const text = await readFile(path, "utf8");
      expect(text.match(/(^|[;}])import[\s{*"']|import\(["'`]|[;}]export[^;]*from["']/g)).toBeNull();
    }
  });

  it("has TorchAO's layout where the program's weights are in it, else not", async () => {
    const { files } = await bundleProgram(torchaoProgram, torchaoOutput);
    for (const { modules } of bundle.files) expect(modules).not.toContain("kernels/layout/torchao-bits");
    for (const { modules } of files) expect(modules).toContain("kernels/layout/torchao-bits");
    await expectLogits(torchaoProgram, torchaoOutput);
  });

  it("runs in plain Node and gives the program's logits", () => expectLogits(program, output));

  async function expectLogits(file: string, modules: string): Promise<void> {
    const model = await loadProgram(file);
    const decoder = model.createDecoder();
    const expected = [await decoder.prefill(ids), await decoder.step(4)].map((logits) => [...logits]);
    const text = await runAlone(
      `
      import { createDecoder, load } from "./lowbit.js";
      const program = await load(process.argv[2], { threads: 1 });
      const decoder = createDecoder(program);
      const logits = [await decoder.prefill(${JSON.stringify(ids)}), await decoder.step(4)].map((row) => [...row]);
      await program.dispose();
      console.log(JSON.stringify(logits));
    `,
      modules,
      file,
    );
    const found: number[][] = JSON.parse(text);
    for (const [i, row] of expected.entries()) {
      const error = Math.hypot(...row.map((value, j) => value - found[i]![j]!)) / Math.hypot(...row);
      expect(error).toBeLessThan(1e-3);
    }
    await model.dispose();
  }

  it("has a worker that serves a program by messages", async () => {
    const text = await runAlone(`
      import { readFileSync } from "node:fs";
      globalThis.postMessage = (message) => replies.push(message);
      const replies = [];
      await import("./worker.js");
      const calls = [{ call: "step", token: 1 }, { call: "load", source: new Uint8Array(readFileSync(process.argv[2])), threads: 1 },
        { call: "prefill", ids: [1, 2] }, { call: "step", token: 3 }, { call: "rewind", position: 0 }];
      calls.forEach((call, id) => globalThis.onmessage({ data: { id, ...call } }));
      while (replies.length < calls.length) await new Promise((done) => setTimeout(done, 10));
      console.log(JSON.stringify(replies.map(({ id, result, error }) => [id, error ?? result?.vocabularySize ?? result?.length ?? null])));
      process.exit(0);
    `);
    const size = JSON.parse(text)[1][1];
    expect(JSON.parse(text)).toEqual([
      [0, "step: load a program first"],
      [1, size],
      [2, size],
      [3, size],
      [4, null],
    ]);
    expect(size).toBeGreaterThan(0);
  });

  it("can hold every operator and kernel of the core", () => {
    const names = [...operators].map(({ name }) => name).filter((name) => !name.startsWith("aqlm::"));
    const methods = [
      { operators: names.map((name) => ({ name: name.split(".")[0], overload: name.split(".")[1] })), delegates: [] },
    ];
    const called = calledOperators({ methods } as unknown as Program, sources);
    expect(called).toHaveLength(names.length);
    expect(tableModule(called, sources, (module) => module)).toContain("linearFloatReference");
  });

  it("takes operators and kernels from the modules that their lists import, whichever those are", async () => {
    const importsOf = async (list: string) => {
      const text = await readFile(new URL(`../src/${list}.ts`, import.meta.url), "utf8");
      const imports = [...text.matchAll(/^(?:import|export|\}) (?!type).*?from "(\.[^"]+)\.ts";$/gm)];
      return imports.map(([, path]) => posix.join(posix.dirname(list), path!));
    };
    const families = await importsOf("kernels/families/index");
    const lists = families.filter((path) => path.endsWith("/kernels"));
    const kernels = [
      ...families.filter((path) => !lists.includes(path)),
      ...(await Promise.all(lists.map(importsOf))).flat(),
    ];
    for (const [paths, parts] of [
      [await importsOf("registry/operators"), sources.operators],
      [kernels, sources.kernels],
    ] as const) {
      expect(paths.length).toBeGreaterThan(10);
      expect([...parts.keys()].sort()).toEqual([...new Set(paths)].sort());
    }
  });

  it("has stand-ins that are what they stand in for, as far as they go", async () => {
    const modules = await modulesWithStandIn();
    expect(modules).toContain("kernels/native/addon");
    for (const module of modules) {
      const [original, other] = [await partOf(module), await partOf(standIn(module))];
      for (const [name, value] of Object.entries(other)) {
        expect(typeof value, `${module}: ${name}`).toBe(typeof original[name]);
        if (typeof value === "number") expect(value, name).toBe(original[name]);
      }
    }
    const [{ torchaoUniversal }, other] = await Promise.all(
      ["", "bundle/stand-ins/"].map((folder) => partOf(`${folder}kernels/layout/torchao-linear`)),
    );
    const { name, nr } = torchaoUniversal as { name: string; nr: number };
    expect(other!.torchaoUniversal).toMatchObject({ name, nr });
  });

  it("names operators that it cannot hold", () => {
    const methods = [{ operators: [{ name: "mine::twice", overload: "out" }], delegates: [] }];
    expect(() => calledOperators({ methods } as unknown as Program, sources)).toThrow(
      /operators mine::twice.out are registered from outside lowbit.s core/,
    );
  });
});
