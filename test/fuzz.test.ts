/**
 * Damaged programs: bytes of a real .pte file changed at random (headers, tables, headers of packed weights), and its
 * methods with random fields changed. Loading and one step give a clean error or a clean run, never anything else.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { memorySource } from "../src/byte-source.ts";
import {
  embedding,
  exportProgram,
  InvalidFileError,
  int8DynamicActivationIntxWeight,
  LowbitError,
  loadCheckpoint,
  type QuantizationConfig,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import { formatMethod } from "../src/program/format.ts";
import type { Program } from "../src/program/program.ts";
import { readProgram } from "../src/program/read.ts";
import { verifyProgram } from "../src/program/verify.ts";
import { loadProgramObject } from "../src/tools/index.ts";
import { changeBytes, numbers, packedHeaders, programBytes } from "./support/damage.ts";
import { temporaryFolder } from "./support/folders.ts";
import { Random } from "./support/random.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
await writeTinyCheckpoint(folder, { config: { num_hidden_layers: 1, max_position_embeddings: 32 } });

/** The bytes of a program with all kinds of operators. */
async function exported(rows: QuantizationConfig | null): Promise<Uint8Array> {
  const model = await loadCheckpoint(folder);
  if (rows) quantize(model, [int8DynamicActivationIntxWeight({ bits: 4 }), rows]);
  const path = join(folder, "fuzz.pte");
  await exportProgram(model, path);
  await model.close();
  return new Uint8Array(await readFile(path));
}

const files = {
  "shared embedding": await exported(sharedEmbedding({ bits: 3 })),
  "embedding apart": await exported(embedding({ bits: 4 })),
  float: await exported(null),
};

/** Prints a program, loads it and runs a prompt, a step and the sampler. True when that went well, false for an error of ours. */
async function survives(program: () => Promise<Program>, name: string): Promise<boolean> {
  try {
    const read = await program();
    read.methods.map(formatMethod);
    const llm = await loadProgramObject(read, "fuzz.pte");
    const decoder = llm.createDecoder();
    await decoder.prefill([1, 2, 3]);
    await decoder.step(4);
    for await (const _ of llm.generate([5], { maxTokens: 1 }));
    return true;
  } catch (error) {
    if (error instanceof LowbitError) return false;
    throw new Error(`${name}: ${error}`, { cause: error });
  }
}

it.each(Object.entries(files))("changed bytes: %s", async (name, good) => {
  const headers = packedHeaders(good);
  let clean = 0;
  const runs = 700;
  for (let seed = 0; seed < runs; seed++) {
    const bytes = good.slice();
    changeBytes(bytes, { tableBytes: programBytes(good), headers }, new Random(seed));
    if (await survives(() => readProgram(memorySource("fuzz.pte", bytes)), `${name}, seed ${seed}`)) clean++;
  }
  // Many changes hit what does not matter, most are noticed.
  expect(clean).toBeGreaterThan(runs / 50);
  expect(clean).toBeLessThan(runs / 2);
});

it.each(Object.entries(files))("cut short: %s", async (name, good) => {
  const random = new Random(1);
  for (let i = 0; i < 100; i++) {
    const length = random.integer(0, good.length - 1);
    const program = () => readProgram(memorySource("fuzz.pte", good.slice(0, length)));
    if (await survives(program, `${name}, ${length} bytes`)) expect.fail(`${name}: ran from ${length} bytes`);
  }
});

type Path = readonly (string | number)[];

/** Paths of all numbers, booleans and nulls in a tree. */
function leavesOf(tree: unknown, path: Path = []): Path[] {
  if (typeof tree === "number" || typeof tree === "boolean" || tree === null) return [path];
  if (path.at(-1) === "dtype" || path.at(-1) === "dynamism") return [path];
  if (typeof tree !== "object") return [];
  return Object.entries(tree as object).flatMap(([key, value]) => leavesOf(value, [...path, key]));
}

function changedValue(key: string | number, value: unknown, random: Random): unknown {
  if (key === "dtype") return random.pick(["f32", "f16", "i64", "i32", "u8", "i8", "f64", "bool"]);
  if (key === "dynamism") return random.pick(["static", "bound", "unbound"]);
  if (typeof value === "boolean") return !value;
  const near = typeof value === "number" ? [value - 1, value + 1, 2 * value, value / 2] : [0];
  return random.pick([...near, ...numbers, random.integer(0, 100), 2 ** 40, Number.NaN]);
}

/** Changes a few fields of a tree of methods; now and then drops or repeats an item of a list. */
function changeFields(methods: unknown, leaves: readonly Path[], random: Random): void {
  for (let changes = random.integer(1, 3); changes > 0; changes--) {
    const path = random.pick(leaves);
    const parent = path.slice(0, -1).reduce<unknown>((node, key) => (node as never)?.[key], methods);
    if (typeof parent !== "object" || parent === null) continue;
    const key = path.at(-1)!;
    const fields = parent as Record<string | number, unknown>;
    fields[key] = changedValue(key, fields[key], random);
    if (!Array.isArray(parent)) continue;
    const kind = random.integer(0, 9);
    if (kind === 0) parent.splice(random.integer(0, parent.length - 1), 1);
    if (kind === 1) parent.push(parent[0]);
  }
}

it.each(Object.entries(files))("changed fields: %s", async (name, good) => {
  const program = await readProgram(memorySource("good.pte", good));
  const leaves = leavesOf(program.methods);
  for (let seed = 0; seed < 700; seed++) {
    const methods = structuredClone(program.methods);
    changeFields(methods, leaves, new Random(seed));
    const changed = async (): Promise<Program> => {
      const result = { ...program, methods };
      verifyProgram(result, (place, problem) => {
        throw new InvalidFileError(place, problem);
      });
      return result;
    };
    await survives(changed, `${name}, seed ${seed}`);
  }
});
