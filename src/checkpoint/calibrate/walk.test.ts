/** Forks of a walk beside whole runs with the same weights. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";
import { loadCheckpoint } from "../load.ts";
import { FloatWalk } from "./walk.ts";

const checkpoint = join(await temporaryFolder(), "tiny");
await writeTinyCheckpoint(checkpoint);
const DOWN = "model.layers.0.mlp.down_proj.weight";
const HEAD = "lm_head.weight";
const WINDOWS = [
  [276, 5, 6, 7],
  [276, 9, 5],
];
const TOKENS = [3, 9, 100, 281];

/** Logits of some tokens. */
const logitsOf = ({ shape, data }: Tensor, tokens: readonly number[]) =>
  Array.from({ length: data.length / shape.at(-1)! }, (_, row) =>
    tokens.map((token) => data[row * shape.at(-1)! + token] as number),
  );

it.each([
  [DOWN, WINDOWS],
  [DOWN, WINDOWS.slice(0, 1)],
  [HEAD, WINDOWS],
])("forks of %s give some logits of a run with the same weights", async (changed, windows) => {
  const model = await loadCheckpoint(checkpoint);
  const weight = model.weight(changed, { float: true });
  const halved = toFloat32((await weight.load()) as Tensor).map((value) => value / 2);
  const [, columns] = weight.shape as [number, number];
  const expected = await new FloatWalk(model, windows).run(async (name) => (name === changed ? halved : null));
  const plain = await new FloatWalk(model, windows).run(async () => null);
  const given =
    changed === HEAD
      ? Float32Array.from(TOKENS.flatMap((token) => [...halved.subarray(token * columns, (token + 1) * columns)]))
      : halved;
  let found: readonly Tensor[] = [];
  const walk = new FloatWalk(model, windows);
  await walk.runForked(TOKENS, async (names, fork) => {
    if (!names.includes(changed)) return;
    found = await fork(async () => given);
    expect(await fork(async () => given)).toEqual(found);
  });
  for (const [w, logits] of found.entries()) {
    expect(logits.shape).toEqual([1, windows[w]!.length, TOKENS.length]);
    expect(logitsOf(logits, [0, 1, 2, 3])).toEqual(logitsOf(expected[w]!, TOKENS));
    expect(logitsOf(expected[w]!, TOKENS)).not.toEqual(logitsOf(plain[w]!, TOKENS));
  }
  expect(found).toHaveLength(windows.length);
  // What was kept of the head is forgotten.
  expect(await walk.run(async () => null)).toEqual(plain);
  await model.close();
});
