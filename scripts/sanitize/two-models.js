/** Two models at the same time on several threads, aborted and disposed of while they run: what the thread sanitizer sees. */
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
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const ROUNDS = 4;
const threads = 3;
const prompt = Array.from({ length: 40 }, (_, i) => 1 + ((i * 37) % 250));
const options = { temperature: 0, maxTokens: 24, ignoreEos: true };
const folder = mkdtempSync(join(tmpdir(), "lowbit-sanitize-"));

/** Two programs of one checkpoint that choose other kernels. */
async function exportPrograms() {
  const config = { hidden_size: 64, intermediate_size: 256, max_position_embeddings: 128 };
  await writeTinyCheckpoint(folder, { config });
  const formats = [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 }), intxWeightOnly({ bits: 8 })];
  const paths = formats.map((_, i) => join(folder, `${i}.pte`));
  for (const [i, format] of formats.entries()) {
    const model = await loadCheckpoint(folder);
    quantize(model, [format]);
    await exportProgram(model, paths[i]);
    await model.close();
  }
  return paths;
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

try {
  const paths = await exportPrograms();
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
  console.log(`two models at once: ${ROUNDS} rounds`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
