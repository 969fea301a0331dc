/** Folders that tests read from and write to. */
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";

/** The folder `shared` beside the checkout, with models and golden data that are too large for the repository. */
export const shared = fileURLToPath(new URL("../../../shared/", import.meta.url));

/** "" when `shared` has the path, else why a test is skipped, for its name. */
export function absence(path: string): string {
  return existsSync(join(shared, path)) ? "" : ` (skipped: ../shared/${path} is absent)`;
}

/** A new folder that is removed when the tests of the file have ended. Called outside of tests. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "lowbit-test-"));
  afterAll(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
