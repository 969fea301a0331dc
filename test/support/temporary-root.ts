/** A folder for all temporary files of a test run, removed when the run ends: tests that are skipped or fail leave none. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

const PREFIX = "lowbit-tests-";

/** Called for each project of vitest: the first makes the folder. Paths of sockets must stay short. */
export default function setup(): () => void {
  if (basename(tmpdir()).startsWith(PREFIX)) return () => {};
  const root = mkdtempSync(join(tmpdir(), PREFIX));
  process.env.TMPDIR = root;
  // What commands keep of prompts and programs is nobody's but this run's.
  process.env.LOWBIT_CACHE = join(root, "cache");
  return () => rmSync(root, { recursive: true, force: true });
}
