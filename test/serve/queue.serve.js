/** A batch that two workers share by Redis: kill -9 of a worker, and of who asked, loses nothing and does nothing twice. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, inject, it } from "vitest";
import { freePort, isInstalled, main, run, sleep } from "./process.js";

const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-queue-"));
afterAll(() => rmSync(folder, { recursive: true }));
/** Where bullmq is found from. */
const cwd = fileURLToPath(new URL(".", import.meta.url));
const REQUESTS = 200;

describe.skipIf(!(await isInstalled("redis-server")))("a queue (skipped without redis-server)", () => {
  it("loses nothing when a worker and who asked are killed", async () => {
    const port = await freePort();
    const redis = run("redis-server", ["--port", String(port), "--save", "", "--bind", "127.0.0.1"], { cwd: folder });
    const queue = ["--queue", `redis://127.0.0.1:${port}`];
    const input = join(folder, "in.jsonl");
    const output = join(folder, "out.jsonl");
    const body = (i) => ({ model: "demo", prompt: `ROMEO ${i}`, max_tokens: 30, temperature: 0 });
    const line = (i) => JSON.stringify({ custom_id: `r${i}`, method: "POST", url: "/v1/completions", body: body(i) });
    writeFileSync(input, Array.from({ length: REQUESTS }, (_, i) => line(i)).join("\n"));
    const work = () =>
      run(process.execPath, [main, "batch", "--worker", "--model", inject("program"), ...queue], { cwd });
    const ask = () => run(process.execPath, [main, "batch", input, "-o", output, ...queue], { cwd });
    const killed = work();
    const worker = work();
    try {
      const first = ask();
      while ((statSync(output, { throwIfNoEntry: false })?.size ?? 0) === 0) await sleep(20);
      killed.child.kill("SIGKILL");
      first.child.kill("SIGKILL");
      await first;
      const { code, output: said } = await ask();
      expect([code, said]).toEqual([0, expect.stringContaining(`${REQUESTS} requests answered`)]);
      const answers = readFileSync(output, "utf8")
        .trimEnd()
        .split("\n")
        .map((text) => JSON.parse(text));
      expect(answers).toHaveLength(REQUESTS);
      expect(new Set(answers.map(({ custom_id }) => custom_id)).size).toBe(REQUESTS);
      expect(answers.every(({ response }) => response.status_code === 200)).toBe(true);
      worker.child.kill("SIGTERM");
      expect((await worker).code).toBe(0);
    } finally {
      for (const { child } of [killed, worker, redis]) child.kill("SIGKILL");
    }
  });
});
