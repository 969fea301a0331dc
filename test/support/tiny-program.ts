/** A tiny checkpoint and a program of it, for tests of commands, each file's in a folder of its own. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, beforeEach, expect } from "vitest";
import { lowbit } from "./command-line.ts";
import { temporaryFolder } from "./folders.ts";
import { writeTinyCheckpoint } from "./tiny-checkpoint.ts";

/** Folder of all, the checkpoint, its program in 4 bits, and a path that is free before each test. */
export interface TinyProgram {
  readonly root: string;
  readonly folder: string;
  readonly program: string;
  readonly output: string;
}

export async function tinyProgram(): Promise<TinyProgram> {
  const root = await temporaryFolder();
  const paths = { folder: join(root, "tiny"), program: join(root, "tiny.pte"), output: join(root, "out.pte") };
  beforeAll(async () => {
    await writeTinyCheckpoint(paths.folder);
    const argv = ["quantize", paths.folder, "--qmode", "8da4w", "--shared-embedding", "-o", paths.program];
    expect((await lowbit(argv)).code).toBe(0);
  });
  beforeEach(() => rmSync(paths.output, { force: true }));
  return { root, ...paths };
}

/** Runs a command that must succeed, and parses what it prints. */
export async function json(...argv: string[]): Promise<Record<string, never>> {
  const { code, stdout, stderr } = await lowbit([...argv, "--json"]);
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout.endsWith("\n")).toBe(true);
  return JSON.parse(stdout);
}
