/** `lowbit batch` as a process that is killed, and what is wrong with command lines. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const root = await temporaryFolder();
const program = join(root, "tiny.pte");
const input = join(root, "in.jsonl");
const REQUESTS = 300;
beforeAll(async () => {
  await writeTinyCheckpoint(join(root, "tiny"), { config: { max_position_embeddings: 512 } });
  expect((await lowbit(["quantize", join(root, "tiny"), "--qmode", "8da4w", "-o", program])).code).toBe(0);
  const lines = Array.from({ length: REQUESTS }, (_, i) => {
    const body = { model: "tiny", prompt: `Text ${i}`, max_tokens: 20, ignore_eos: true, temperature: 0 };
    return JSON.stringify({ custom_id: `r${i}`, method: "POST", url: "/v1/completions", body });
  });
  writeFileSync(input, lines.join("\n"));
});

function count(path: string): number {
  return existsSync(path) ? readFileSync(path, "utf8").split("\n").length - 1 : 0;
}

describe("lowbit batch", () => {
  it("loses no line and does none twice when it is killed", async () => {
    const output = join(root, "out.jsonl");
    const argv = ["batch", input, "-o", output, "--model", program];
    let kills = 0;
    for (;;) {
      const before = count(output);
      const child = spawn(process.execPath, [main, ...argv], { stdio: "ignore" });
      const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
      const watch = setInterval(() => {
        if (kills < 2 && count(output) > before + 60) child.kill("SIGKILL");
      }, 2);
      const code = await ended;
      clearInterval(watch);
      if (code === 0) break;
      expect(code).toBe(null);
      kills++;
    }
    expect(kills).toBe(2);
    const answers = readFileSync(output, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(new Set(answers.map(({ custom_id }) => custom_id)).size).toBe(REQUESTS);
    expect(answers).toHaveLength(REQUESTS);
    expect(answers.every(({ response }) => response.body.usage.completion_tokens === 20)).toBe(true);
    const again = await lowbit(argv);
    expect([again.code, again.stderr]).toEqual([0, expect.stringContaining("300 of them by an earlier run")]);
  });

  it("takes the models that the requests call where none are given", async () => {
    const one = join(root, "one.jsonl");
    const body = { model: program, prompt: "Hello", max_tokens: 2 };
    writeFileSync(one, JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/completions", body }));
    const output = join(root, "one-out.jsonl");
    const { code, stderr } = await lowbit(["batch", one, "-o", output]);
    expect([code, stderr]).toEqual([0, expect.stringContaining("1 requests answered")]);
    expect(JSON.parse(readFileSync(output, "utf8")).response.status_code).toBe(200);
  });

  it.each([
    [["X"], "give a file of requests and -o for the answers", 2],
    [["X", "-o", "X"], "in.jsonl: is read, and would be replaced", 1],
    [["--worker"], "--worker needs --queue", 2],
    [["--worker", "--queue", "redis://127.0.0.1:1"], "--worker needs --model", 2],
    [["X", "-o", "Y", "--queue", "redis://127.0.0.1:1", "--model", "m"], "--model is for workers", 2],
    [["X", "-o", "Y", "--queue", "http://127.0.0.1:1"], "expected an address such as redis://host:6379", 1],
    [["X", "-o", "Y", "--model", "none.pte"], "none.pte: expected a file, a folder or hf:org/name", 2],
  ])("says what is wrong with %j", async (argv, message, code) => {
    const paths: Record<string, string> = { X: input, Y: join(root, "y.jsonl") };
    const result = await lowbit(["batch", ...argv.map((arg) => paths[arg] ?? arg)]);
    expect([result.code, result.stderr]).toEqual([code, expect.stringContaining(message)]);
  });
});
