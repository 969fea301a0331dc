/** A folder for all temporary files of a test run, removed when the run ends: tests that are skipped or fail leave none. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Called for each project of vitest: the folder of the second lies in that of the first. */
export default function setup(): () => void {
  const root = mkdtempSync(join(tmpdir(), "lowbit-tests-"));
  process.env.TMPDIR = root;
  // What commands keep of prompts and programs is nobody's but this run's.
  process.env.LOWBIT_CACHE = join(root, "cache");
  return () => rmSync(root, { recursive: true, force: true });
}
