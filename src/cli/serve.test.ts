/** `lowbit serve` as a process: what it says, how it is asked, and how it ends. */
import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const root = await temporaryFolder();
const folder = join(root, "tiny");
const program = join(root, "tiny-8da4w.pte");
beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 2048 } });
  expect((await lowbit(["quantize", folder, "--qmode", "8da4w", "-o", program])).code).toBe(0);
});

interface Served {
  readonly child: ChildProcess;
  readonly url: string;
  readonly ended: Promise<{ code: number | null; stdout: string; stderr: string }>;
}

async function serve(argv: readonly string[], env: Record<string, string> = {}): Promise<Served> {
  const child = spawn(process.execPath, [main, "serve", ...argv, "--port", "0"], { env: { ...process.env, ...env } });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  const url = new Promise<string>((resolve) =>
    child.stderr.on("data", (data) => {
      stderr += data;
      const found = /at (http:\S+)\/v1/.exec(stderr);
      if (found) resolve(found[1]!);
    }),
  );
  const ended = new Promise<Awaited<Served["ended"]>>((resolve) =>
    child.on("close", (code) => resolve({ code, stdout, stderr })),
  );
  const failed = ended.then(({ stderr }) => Promise.reject(new Error(stderr)));
  failed.catch(() => {});
  return { child, url: await Promise.race([url, failed]), ended };
}

async function ready(url: string): Promise<void> {
  while ((await fetch(`${url}/ready`)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 20));
}

function complete(url: string, fields: object, headers: Record<string, string> = {}): Promise<Response> {
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers } };
  return fetch(`${url}/v1/completions`, { ...init, body: JSON.stringify({ prompt: "Hello", ...fields }) });
}

describe("lowbit serve", () => {
  it("serves programs and checkpoints by their names, each loaded when it is asked for", async () => {
    const { child, url, ended } = await serve([program, `other=${folder}`]);
    const { data } = await (await fetch(`${url}/v1/models`)).json();
    expect(data.map(({ id }: { id: string }) => id)).toEqual(["tiny-8da4w", "other"]);
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('lowbit_model_loaded{model="other"} 0');
    for (const model of ["other", "tiny-8da4w"]) expect((await complete(url, { model })).status).toBe(200);
    child.kill("SIGINT");
    const { code, stdout } = await ended;
    expect(code).toBe(0);
    const requests = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(requests.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  it("after a SIGTERM finishes what is under way, and takes no more", async () => {
    const { child, url, ended } = await serve([program], { LOWBIT_API_KEYS: "sk-a,sk-b" });
    await ready(url);
    const fields = { model: "tiny-8da4w", max_tokens: 1500, ignore_eos: true, stream: true };
    expect((await complete(url, fields)).status).toBe(401);
    const answer = await complete(url, fields, { authorization: "Bearer sk-b" });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value!;
    child.kill("SIGTERM");
    const refused = async () => {
      const response = await complete(url, { model: "tiny-8da4w" }, { authorization: "Bearer sk-b" }).catch(() => null);
      return response === null || response.status === 503;
    };
    while (!(await refused())) await new Promise((resolve) => setTimeout(resolve, 5));
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += next.value;
    expect(text).toMatch(/"finish_reason":"length".*\n\ndata: \[DONE\]\n\n$/);
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(0);
    expect(stdout + stderr).not.toContain("sk-b");
  });

  it("ends at once at a second signal", async () => {
    const { child, url, ended } = await serve([program]);
    await ready(url);
    const fields = { model: "tiny-8da4w", max_tokens: 1900, n: 16, ignore_eos: true, stream: true, temperature: 1 };
    // Others keep it busy, so that the answer cannot end before the second signal.
    for (let i = 0; i < 2; i++) complete(url, { ...fields, stream: false }).catch(() => null);
    const reader = (await complete(url, fields)).body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value!;
    // Signals that come together are one: the second waits until the first was taken, and then a while.
    const taken = new Promise<void>((resolve) => {
      child.stderr!.on("data", (chunk) => String(chunk).includes("again to end now") && resolve());
    });
    child.kill("SIGTERM");
    await taken;
    await new Promise((resolve) => setTimeout(resolve, 1000));
    child.kill("SIGTERM");
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += next.value;
    expect(text).toContain('"code":"server_ends"');
    expect((await ended).code).toBe(0);
  });

  const keys = join(root, "keys.txt");
  writeFileSync(keys, "# none yet\n");
  it.each([
    [[], "missing required argument 'models'", 2],
    [["nothing.pte"], "nothing.pte: expected a file, a folder or hf:org/name", 2],
    [["X", "--request-limit", "waitng=3"], "Expected NAME=number from 1, with a name of bodyBytes", 2],
    [["X", "--request-limit", "waiting=0"], "Expected NAME=number from 1", 2],
    [["X", "--keys", keys], "keys.txt: expected API keys, one a line, but found none", 1],
    [["X", "X"], "expected names that differ but found it twice", 1],
    [["X", "--qmode", "8da4w"], "is a program, quantized when it was exported", 2],
    [["X", "--host", "256.0.0.1"], "cannot listen", 1],
  ])("says what is wrong with %j", async (argv, message, code) => {
    const result = await lowbit(["serve", ...argv.map((arg) => (arg === "X" ? program : arg)), "--port", "0"]);
    expect([result.code, result.stderr]).toEqual([code, expect.stringContaining(message)]);
  });
});
