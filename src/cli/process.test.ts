/** The built program as a process: signals, pipes, a full disk. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const root = mkdtempSync(join(tmpdir(), "lowbit-process-"));
const folder = join(root, "tiny");
const target = join(root, "target");
beforeAll(() => writeTinyCheckpoint(folder));
beforeEach(() => {
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target);
});
afterAll(() => rmSync(root, { recursive: true }));

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of the shell; `onFirstOutput` sees the process when it has written something. */
function shell(script: string, onFirstOutput: (child: ReturnType<typeof spawn>) => void = () => {}): Promise<Ended> {
  const child = spawn("sh", ["-c", script, process.execPath, main], { stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  // Once: a second signal ends a process that is still busy with the first.
  child.stdout.once("data", () => onFirstOutput(child));
  child.stderr.on("data", (data) => {
    stderr += data;
  });
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, stdout, stderr })));
}

const unfit =
  process.platform === "win32" ? "needs a POSIX shell" : existsSync(main) ? null : "dist is absent: npm run build";

describe.skipIf(unfit !== null)(`the lowbit process${unfit ? ` (skipped: ${unfit})` : ""}`, () => {
  test.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("%s ends it with exit code %i", async (signal, code) => {
    // So long that it does not end by itself before the signal comes, even where this process is seldom run.
    const long = join(root, "long");
    const output = join(target, "long.pte");
    await writeTinyCheckpoint(long, { config: { max_position_embeddings: 100_000 } });
    const script =
      `"$0" "$1" quantize '${long}' -o '${output}' >/dev/null && ` +
      `exec "$0" "$1" run '${output}' a --ignore-eos --temperature 1 -n 90000`;
    const ended = await shell(script, (child) => child.kill(signal));
    expect(ended).toMatchObject({ code, stderr: "" });
  });

  test("a reader that goes away ends it quietly", async () => {
    const script = `{ "$0" "$1" logits '${folder}' --ids 1 --top 282; echo "code $?" >&2; } | head -1`;
    expect(await shell(script)).toEqual({
      code: 0,
      stdout: "after 1 tokens, 282 largest of 282 logits:\n",
      stderr: "code 0\n",
    });
  });

  test("a full disk leaves the old file and nothing else", async () => {
    const output = join(target, "out.pte");
    writeFileSync(output, "old");
    // A limit on file sizes stands in for a full disk: 16 blocks are 8 or 16 KB.
    const script = `ulimit -f 16 && exec "$0" "$1" quantize '${folder}' -o '${output}'`;
    const { code, stdout, stderr } = await shell(script);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toBe(`lowbit: ${output}: cannot be written: EFBIG: file too large, write\n`);
    expect(readFileSync(output, "utf8")).toBe("old");
    expect(readdirSync(target)).toEqual(["out.pte"]);
  });
});
