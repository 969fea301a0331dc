/** Which constants only have rows looked up, of real programs with tables of their own and with one that is the head, too. */
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeHybridCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { exportProgram, loadCheckpoint } from "../index.ts";
import { openFile } from "../node-file.ts";
import { readProgram } from "../program/read.ts";
import { embedding, int8DynamicActivationIntxWeight, sharedEmbedding } from "../quantize/config.ts";
import { operators } from "../registry/operators.ts";
import { lookedUpConstants } from "./looked-up.ts";

const folder = await temporaryFolder();
const linear = int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 });

async function lookedUp(source: string, configs: Parameters<typeof quantize>[1]) {
  const model = await loadCheckpoint(source);
  if (configs.length > 0) quantize(model, configs);
  const path = `${source}-${configs.length}.pte`;
  await exportProgram(model, path);
  await model.close();
  const program = await readProgram(await openFile(path));
  return lookedUpConstants(program, operators).map((index) => program.constants[index]!.data.byteLength);
}

it.each([
  ["Gemma 4's table of layers, in float", [], 1],
  ["and in 4 bits, beside a shared embedding", [linear, sharedEmbedding({ bits: 4, groupSize: 32 })], 1],
] as const)("%s", async (name, configs, count) => {
  const source = `${folder}/gemma-${configs.length}`;
  await writeHybridCheckpoint(source, "gemma4");
  const found = await lookedUp(source, [...configs]);
  expect(found.length, name).toBe(count);
  // Rows of 5 layers, of 32 values each.
  const values = 282 * 5 * 32;
  expect(found[0]! / values).toBeGreaterThan(configs.length > 0 ? 0.5 : 2 - 1e-9);
});

it.each([
  ["an embedding that is no head", false, 1],
  ["an embedding that is the head, too", true, 0],
] as const)("%s", async (_, tied, count) => {
  const source = `${folder}/llama-${tied}`;
  await writeTinyCheckpoint(source, { config: { tie_word_embeddings: tied } });
  expect(await lookedUp(source, [])).toHaveLength(count);
  if (!tied)
    expect((await lookedUp(source, [linear, embedding({ bits: 4, groupSize: 32 })])).length).toBeGreaterThan(0);
});
