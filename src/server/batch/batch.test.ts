/** Batch files: the same answers as the server's, each once, whatever ends a run. */
import { execFileSync } from "node:child_process";
import { appendFile, readFile, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { post, servedApp, tinyModel, tinySource } from "../../../test/support/served.ts";
import { InvalidFileError } from "../../errors.ts";
import type { LanguageModel } from "../../language/language-model.ts";
import { localAnswerer, runBatch } from "./batch.ts";
import type { BatchRequest } from "./input.ts";
import { BatchOutput } from "./output.ts";

const folder = await temporaryFolder();
let llm: LanguageModel;
beforeAll(async () => {
  llm = await tinyModel();
});

const completion = (i: number) => ({
  custom_id: `request-${i}`,
  method: "POST",
  url: "/v1/completions",
  body: { model: "tiny", prompt: `Text ${i}`, max_tokens: 3 + (i % 5), temperature: 0 },
});

async function write(name: string, lines: readonly unknown[]): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join(""));
  return path;
}

async function linesOf(path: string) {
  const text = await readFile(path, "utf8");
  expect(text.endsWith("\n")).toBe(true);
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
}

function run(input: string, output: string, signal = new AbortController().signal, onAnswer = () => {}) {
  const here = localAnswerer({ models: [tinySource(llm)], signal });
  const answer = async (request: BatchRequest) => {
    const answered = await here.answer(request);
    onAnswer();
    return answered;
  };
  return runBatch({ input, output, signal, answerer: async () => ({ answer, concurrency: here.concurrency }) });
}

describe("a batch", () => {
  it("has the answers that the server gives, and errors as answers", async () => {
    const chat = { model: "tiny", messages: [{ role: "user", content: "Hi" }], max_tokens: 4, temperature: 0 };
    const lines = [
      completion(1),
      { custom_id: "chat", method: "POST", url: "/v1/chat/completions", body: chat },
      { custom_id: "wrong", method: "POST", url: "/v1/chat/completions", body: { ...chat, temperature: 9 } },
      { custom_id: "other", method: "POST", url: "/v1/completions", body: { ...completion(2).body, model: "other" } },
    ];
    const input = await write("in.jsonl", lines);
    const output = join(folder, "out.jsonl");
    expect(await run(input, output)).toEqual({ requests: 4, earlier: 0, failed: 2 });
    const answers = new Map((await linesOf(output)).map((line) => [line.custom_id, line]));
    const app = servedApp({ models: [tinySource(llm)] });
    for (const { custom_id, url, body } of lines) {
      const { error, id, response } = answers.get(custom_id);
      const expected = await post(app, url, body);
      expect([error, response.status_code]).toEqual([null, expected.status]);
      expect(id).toMatch(/^batch_req_/);
      expect(response.body.choices).toEqual(expected.body.choices);
      expect(response.body.error).toEqual(expected.body.error);
    }
  });

  it("goes on after an end at any place, without a line twice or none", async () => {
    const input = await write(
      "many.jsonl",
      Array.from({ length: 120 }, (_, i) => completion(i)),
    );
    const output = join(folder, "many-out.jsonl");
    let runs = 0;
    for (;;) {
      const stop = new AbortController();
      let left = 35;
      const result = await run(input, output, stop.signal, () => --left === 0 && stop.abort(new Error("killed"))).catch(
        (error: Error) => error.message,
      );
      runs++;
      if (result !== "killed") {
        expect(result).toMatchObject({ requests: 120, failed: 0 });
        break;
      }
      // What a power cut leaves of a line.
      await appendFile(output, '{"id":"batch_req_x","custom_id":"request-5","resp');
    }
    expect(runs).toBeGreaterThan(2);
    const ids = (await linesOf(output)).map(({ custom_id }) => custom_id);
    expect([ids.length, new Set(ids).size]).toEqual([120, 120]);
    expect(await run(input, output)).toEqual({ requests: 120, earlier: 120, failed: 0 });
  });

  it.each([
    ["not json", "line 2: expected a JSON object"],
    [{ ...completion(1), custom_id: "" }, "line 2: custom_id"],
    [{ ...completion(1), custom_id: "request-0" }, 'custom_id "request-0": expected it once'],
    [{ ...completion(1), url: "/v1/files" }, "line 2: url"],
    [{ ...completion(1), url: "/metrics" }, "line 2: url"],
    [{ ...completion(1), method: "GET" }, "line 2: method"],
    [{ ...completion(1), body: {} }, "line 2: body.model"],
    [{ ...completion(1), body: { model: "tiny", stream: true } }, "line 2: body.stream"],
    ["[".repeat(5000), "line 2: expected a JSON object: expected at most 64 levels"],
  ])("with the line %j is refused before anything is computed", async (line, message) => {
    const input = await write("bad.jsonl", [completion(0), line]);
    const output = join(folder, "bad-out.jsonl");
    await expect(run(input, output)).rejects.toThrow(message);
    await expect(run(input, output)).rejects.toBeInstanceOf(InvalidFileError);
    await expect(readFile(output)).rejects.toThrow("ENOENT");
  });

  it("keeps the digits of numbers on the way to the server and back", async () => {
    const long = "12345678901234567890123";
    const schema = `{"type":"object","properties":{"n":{"const":${long}}},"required":["n"]}`;
    const message = '{"role":"user","content":"Call it"}';
    const tools = `[{"type":"function","function":{"name":"take","parameters":${schema}}}]`;
    const asked = `{"model":"tiny","messages":[${message}],"tools":${tools},"max_tokens":1,"temperature":0}`;
    const input = await write("digits.jsonl", [
      `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"none"},"body": ${asked} }`,
    ]);
    const sent: BatchRequest[] = [];
    const output = join(folder, "digits-out.jsonl");
    const answer = async (request: BatchRequest) => {
      sent.push(request);
      return { status_code: 200, request_id: "r", body: `{"n": ${long}}` };
    };
    await runBatch({ input, output, answerer: async () => ({ answer, concurrency: 1 }) });
    expect(sent).toEqual([{ custom_id: "a", method: "POST", url: "/v1/chat/completions", model: "tiny", body: asked }]);
    expect(await readFile(output, "utf8")).toContain(`"body":{"n": ${long}}`);
  });

  it("has a line end in a text, and a line that a file begins with", async () => {
    const { body, ...request } = completion(0);
    const line = { ...request, body: { ...body, prompt: "two\u2028lines\u2029\u0085and\vmore" } };
    const input = join(folder, "ends-in-texts.jsonl");
    await writeFile(input, `\uFEFF${JSON.stringify(line)}\r\n\r\n${JSON.stringify(completion(1))}`);
    const output = join(folder, "ends-in-texts-out.jsonl");
    expect(await run(input, output)).toEqual({ requests: 2, earlier: 0, failed: 0 });
    expect(await run(input, output)).toEqual({ requests: 2, earlier: 2, failed: 0 });
  });

  it("with a line beyond the limit is refused before that is read whole", async () => {
    const input = await write("long.jsonl", [completion(0)]);
    await appendFile(input, '{"custom_id":"');
    // As long as a file can be: what reads it whole fails for memory.
    await truncate(input, 2 ** 40);
    const output = join(folder, "long-out.jsonl");
    await expect(run(input, output)).rejects.toThrow("line 2: expected at most 33554432 characters");
    await expect(readFile(output)).rejects.toThrow("ENOENT");
  });

  it("that is not there is an error", async () => {
    await expect(run(join(folder, "none.jsonl"), join(folder, "x"))).rejects.toThrow(InvalidFileError);
  });
});

describe("an output", () => {
  it("that holds something else is left as it is", async () => {
    const path = await write("notes.txt", ["my notes", "are here"]);
    await expect(BatchOutput.open(path)).rejects.toThrow("line 1: expected an answer of a batch");
    expect(await readFile(path, "utf8")).toBe("my notes\nare here\n");
  });

  it.each(["{}", "my notes without a line end", '{"id":"batch_', "\u0000\u0001model"])(
    "whose end is %j loses nothing, unless it began as an answer",
    async (end) => {
      const answer = JSON.stringify({ id: "batch_req_1", custom_id: "a", response: {}, error: null });
      for (const start of ["", `${answer}\n`]) {
        const path = join(folder, "ends.jsonl");
        await writeFile(path, start + end);
        const opened = BatchOutput.open(path);
        if (end.startsWith('{"id"')) await (await opened).close();
        else await expect(opened).rejects.toThrow("ends in a line that is no answer");
        expect(await readFile(path, "utf8")).toBe(end.startsWith('{"id"') ? start : start + end);
      }
    },
  );

  it("that is the input, by whatever path, is refused", async () => {
    const input = await write("requests.jsonl", [completion(0)]);
    const link = join(folder, "link.jsonl");
    await symlink(input, link);
    for (const output of [input, link]) await expect(run(input, output)).rejects.toThrow(InvalidFileError);
    expect((await linesOf(input)).length).toBe(1);
  });

  it.skipIf(process.platform === "win32")("or an input that is no file is refused, never waited for", async () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    const input = await write("plain.jsonl", [completion(0)]);
    await expect(run(pipe, join(folder, "of-pipe.jsonl"))).rejects.toThrow("expected a file but found a named pipe");
    await expect(run(input, pipe)).rejects.toThrow("expected a file to write but found a named pipe");
    await expect(run(folder, join(folder, "of-folder.jsonl"))).rejects.toThrow(InvalidFileError);
  });

  it("is written by one process at a time", async () => {
    const path = join(folder, "claimed.jsonl");
    const output = await BatchOutput.open(path);
    await expect(BatchOutput.open(path)).rejects.toThrow("is being written by process");
    await output.close();
    await (await BatchOutput.open(path)).close();
  });

  it("has every line whole, however many are written at once", async () => {
    const path = join(folder, "lines.jsonl");
    const output = await BatchOutput.open(path);
    const answer = { status_code: 200, request_id: "r", body: JSON.stringify({ text: "two\nlines\u2028" }) };
    await Promise.all(Array.from({ length: 50 }, (_, i) => output.write(`${i}`, answer)));
    await output.close();
    expect(new Set((await linesOf(path)).map(({ custom_id }) => custom_id)).size).toBe(50);
    const again = await BatchOutput.open(path);
    expect(again.done.size).toBe(50);
    await again.close();
  });

  it("that ends in text without any line end is nothing but a torn line", async () => {
    const path = join(folder, "torn.jsonl");
    await writeFile(path, `{"id":"batch_req_${"x".repeat(200_000)}`);
    const output = await BatchOutput.open(path);
    await output.close();
    expect(await readFile(path, "utf8")).toBe("");
  });
});
