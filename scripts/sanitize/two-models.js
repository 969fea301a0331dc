/** Runs two models at once on several threads, and aborts and disposes of them while they run, under the thread sanitizer. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  loadProgram,
  quantize,
} from "../../src/index.ts";
import { hybridConfigs, mixtureConfigs, writeDecoderCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const ROUNDS = 3;
const threads = 3;
const prompt = Array.from({ length: 40 }, (_, i) => 1 + ((i * 37) % 250));
const options = { temperature: 0, maxTokens: 24, ignoreEos: true };
const folder = mkdtempSync(join(tmpdir(), "lowbit-sanitize-"));

const int4 = int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 });
const config = { hidden_size: 64, intermediate_size: 256, max_position_embeddings: 128 };
const plain = (to) => writeTinyCheckpoint(to, { config });
const decoder = (config) => (to) => writeDecoderCheckpoint(to, { ...config, max_position_embeddings: 128 });

/** Models that run beside each other and choose other kernels: how their checkpoints are written, and their weights' form. */
const pairs = [
  [
    { write: plain, format: int4 },
    { write: plain, format: intxWeightOnly({ bits: 8 }) },
  ],
  [
    { write: decoder(mixtureConfigs.gpt_oss), format: int4 },
    { write: decoder(hybridConfigs.qwen3_5), format: intxWeightOnly({ bits: 4 }) },
  ],
  [
    { write: decoder(mixtureConfigs.qwen3_moe), format: null },
    { write: decoder(hybridConfigs.lfm2), format: int4 },
  ],
];

async function exportOf({ write, format }, name) {
  const source = join(folder, name);
  await write(source);
  const model = await loadCheckpoint(source);
  if (format) quantize(model, [format]);
  const path = join(folder, `${name}.pte`);
  await exportProgram(model, path);
  await model.close();
  return path;
}

/** The text of a run that ends early after some pieces, or all of it. */
async function textOf(model, pieces = Number.POSITIVE_INFINITY) {
  const controller = new AbortController();
  let text = "";
  let count = 0;
  try {
    for await (const piece of model.generate(prompt, { ...options, signal: controller.signal })) {
      text += piece;
      if (++count === pieces) controller.abort();
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  return text;
}

async function runPair(paths) {
  const load = () => Promise.all(paths.map((path) => loadProgram(path, { threads })));
  const alone = [];
  for (const model of await load()) alone.push(await textOf(model));
  for (let round = 0; round < ROUNDS; round++) {
    const [a, b] = await load();
    const runs = [textOf(a), textOf(b), textOf(a, 3), textOf(b, 5)];
    assert.deepEqual((await Promise.all(runs)).slice(0, 2), alone);
    // One goes while the other runs, and in the middle of a run of its own.
    const rest = textOf(b);
    const cut = textOf(a).catch(() => "");
    await new Promise((resolve) => setTimeout(resolve, 5 * round));
    await a.dispose();
    assert.equal(await rest, alone[1]);
    await cut;
    await b.dispose();
  }
}

try {
  for (const [i, pair] of pairs.entries()) {
    const paths = [];
    for (const [j, model] of pair.entries()) paths.push(await exportOf(model, `${i}-${j}`));
    await runPair(paths);
  }
  console.log(`two models at once: ${pairs.length} pairs, ${ROUNDS} rounds each`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
