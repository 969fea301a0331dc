/** Prefixes on disk of processes that are killed at any moment; `npm run stress:prefixes` is longer. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "./support/folders.ts";
import { stressPrefixes } from "./support/prefix-stress.js";

it("are found by those after them, give the same logits bit for bit, and keep the limit of their folder", async () => {
  const folder = join(await temporaryFolder(), "prefixes");
  await mkdir(folder);
  const { answers, found, mostBytes } = await stressPrefixes({
    folder,
    kills: 6,
    processes: 2,
    bytes: 2e5,
    layers: { window: 40 },
  });
  expect(answers).toBeGreaterThan(5);
  expect(found).toBeGreaterThan(0);
  expect(mostBytes).toBeGreaterThan(1e4);
});
