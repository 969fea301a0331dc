/** Embeddings in a worker of Chromium, against Node's. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";

const { exportProgram, loadCheckpoint, loadProgram } = await import("../../dist/index.js");

const TEXTS = ["What is the capital of France?", "Paris", "A baguette is a bread."];
/** Kernels of other instruction sets sum in other orders. */
const DIFFERENCE_MAX = 1e-5;

/** The tiny embedding model as a program in build/, and its vectors in Node. */
async function embeddings() {
  const program = join(root, "build", "tiny-bge.pte");
  const checkpoint = await loadCheckpoint(join(root, "models", "tiny-bge"));
  await exportProgram(checkpoint, program);
  await checkpoint.close();
  const model = await loadProgram(program);
  const vectors = await model.embed(TEXTS);
  await model.dispose();
  return { program, vectors };
}

/** `embed` of `lowbit/web`, and what a model that makes vectors says to `rank`. */
export async function checkTexts(context, { address, files }) {
  const { program, vectors } = await embeddings();
  files.set("/tiny-bge.pte", { bytes: readFileSync(program), starts: [], rest: "at once" });
  const page = await context.newPage();
  await page.goto(`${address}unbundled.html`);
  const found = await page.evaluate(async (texts) => {
    const loadModel = await globalThis.imported;
    const model = await loadModel("tiny-bge.pte");
    const vectors = await model.embed(texts);
    const refusal = await model.rank("x", ["y"]).catch(({ message }) => message);
    const { makes } = model.facts;
    model.dispose();
    return { makes, refusal, vectors: vectors.map((vector) => [...vector]) };
  }, TEXTS);
  await page.close();
  assert.equal(found.makes, "embeddings");
  assert.match(found.refusal, /the program gives embeddings; it gives no scores/);
  assert.deepEqual(
    found.vectors.map(({ length }) => length),
    vectors.map(({ length }) => length),
  );
  for (const [i, vector] of vectors.entries())
    for (const [k, value] of vector.entries())
      assert.ok(Math.abs(found.vectors[i][k] - value) < DIFFERENCE_MAX, `vector ${i}, value ${k}`);
}
