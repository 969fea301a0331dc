/** Claims and unfinished files between processes that are killed at any moment; `npm run stress:claims` is longer. */
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname } from "node:path";
import { expect, it } from "vitest";
import { writeFileResumable } from "../src/resumable-file.ts";
import { contentOf, stressClaims } from "./support/claim-stress.js";
import { temporaryFolder } from "./support/folders.ts";

const canUnshare = spawnSync("unshare", ["--pid", "--fork", "--mount-proc", "true"]).status === 0;

it("what stands at a path is whole, a claim has one holder at a time, and nothing is left over", async () => {
  const { path, kills, turns } = await stressClaims({ folder: await temporaryFolder(), seconds: 4, processes: 3 });
  expect(kills).toBeGreaterThan(2);
  expect(turns).toBeGreaterThan(0);
  await writeFileResumable(path, { key: "last" }, (sink) => sink.write(Uint8Array.of(1)));
  expect(readdirSync(dirname(path)).filter((name) => !name.startsWith("file.bin.turn."))).toEqual(["file.bin"]);
});

it.skipIf(!canUnshare)(
  `so it is in containers, where processes have equal numbers${canUnshare ? "" : " (skipped: no right to make process namespaces)"}`,
  async () => {
    const options = { seconds: 8, processes: 3, isNamespaced: true };
    const { path, kills } = await stressClaims({ folder: await temporaryFolder(), ...options });
    expect(kills).toBeGreaterThan(2);
    expect(contentOf(path)).toBeLessThan(3);
  },
);
