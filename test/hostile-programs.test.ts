/** Programs from strangers: none may crash, hang, or read or write what is not its own, on any backend. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasNative } from "../src/kernels/native/rows.ts";
import { saveProgram } from "../src/program/save.ts";
import { hostileExperts } from "./support/hostile-experts.ts";
import { hostilePrograms } from "./support/hostile-programs.ts";
import { hostileSequences } from "./support/hostile-sequences.ts";
import { oddPrograms } from "./support/odd-programs.ts";

const script = fileURLToPath(new URL("support/run-programs.js", import.meta.url));
const dist = fileURLToPath(new URL("../dist/index.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lowbit-hostile-"));
const files = join(folder, "programs");
const programs = [...hostilePrograms(), ...hostileExperts(), ...hostileSequences(), ...oddPrograms()];
const fileOf = (index: number) => `${String(index).padStart(3, "0")}.pte`;

beforeAll(async () => {
  mkdirSync(files);
  for (const [i, { program }] of programs.entries()) await saveProgram(program, join(files, fileOf(i)));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Result {
  readonly name: string;
  readonly milliseconds?: number;
  readonly outputs?: readonly (readonly number[])[];
  readonly error?: { readonly class: string; readonly message: string };
}

/** Far more than one program takes; a process that hangs is ended. */
const PROGRAM_MS = 30_000;
/** The same of all. */
const ALL_MS = 300_000;

function runAll(backend: string): Promise<{ results: readonly Result[]; signal: string | null }> {
  const env = { ...process.env, LOWBIT_BACKEND: backend };
  const child = spawn(process.execPath, [script, files], { env, stdio: ["ignore", "pipe", "inherit"] });
  let stdout = "";
  const watchdog = setTimeout(() => child.kill("SIGKILL"), PROGRAM_MS);
  child.stdout.on("data", (data) => {
    stdout += data;
    watchdog.refresh();
  });
  return new Promise((resolve) =>
    child.on("close", (_, signal) => {
      clearTimeout(watchdog);
      const lines = stdout.split("\n").filter((line) => line.endsWith("}"));
      resolve({ results: lines.map((line) => JSON.parse(line) as Result), signal });
    }),
  );
}

/** Results of honest programs among them, by the beginnings of their names: ones joined with zeros, and means of ones. */
const results: readonly (readonly [string, readonly number[]])[] = [
  ["cat of a constant and a state", [1, 1, 0, 0]],
  ["custom_sdpa over constant keys", new Array<number>(512).fill(1)],
];

const errors = ["InvalidFileError", "InvalidArgumentError", "ShapeError", "UnsupportedError"];
const missing = existsSync(dist) ? null : "dist is absent: npm run build";

describe.each([
  ["native", hasNative() ? missing : "no native addon"],
  ["wasm", missing],
  ["reference", missing],
])("programs from strangers on %s (skipped: %s)", (backend, unfit) => {
  let ended: Awaited<ReturnType<typeof runAll>>;
  beforeAll(async () => {
    if (unfit === null) ended = await runAll(backend);
  }, ALL_MS);

  test.skipIf(unfit !== null)("leave the process alive", () => {
    const at = Number.parseInt(ended.results.at(-1)?.name ?? "0", 10);
    expect(ended.signal, `while it ran: ${programs[at]?.name}`).toBeNull();
  });

  test.skipIf(unfit !== null).each(programs.map(({ name, expected }, i) => [name, expected, i] as const))(
    "%s",
    (name, expected, i) => {
      const result = ended.results.find((found) => found.name === fileOf(i) && found.milliseconds !== undefined);
      expect(result).toBeDefined();
      const known = results.find(([start]) => name.startsWith(start));
      if (known) for (const [at, value] of known[1].entries()) expect(result!.outputs?.[0]?.[at]).toBeCloseTo(value, 5);
      if (expected === null) expect(result!.error).toBeUndefined();
      else if (result!.error) {
        expect(errors).toContain(result!.error.class);
        expect(result!.error.message).toMatch(expected);
        expect(result!.error.message).toContain(fileOf(i));
      } else expect(expected.source, "runs without an error").toBe("(?:)");
    },
  );
});
