/** Limits of containers by made-up files of control groups, of both versions. */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { limitedMachines, writeMachine } from "../../../../test/support/control-groups.ts";
import { temporaryFolder } from "../../../../test/support/folders.ts";
import { quotaThreads } from "./cpu-quota.ts";

const folder = await temporaryFolder();

it.each(limitedMachines)("%s keeps %d threads busy", async (_, threads, files) => {
  expect(quotaThreads(await writeMachine(await mkdtemp(join(folder, "root-")), files))).toBe(threads);
});
