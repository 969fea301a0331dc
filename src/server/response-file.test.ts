/** Responses in a file: found by the server that comes after, whatever became of the one before. */
import { appendFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { ResponseFile } from "./response-file.ts";
import type { StoredResponse } from "./stored-response.ts";
import { StoredResponses } from "./stored-responses.ts";

const limits = { responses: 10, responseBytes: 1 << 20 };
const response = (id: string, text = id, previousId: string | null = null): StoredResponse => ({
  ...{ id, owner: "anna", previousId, body: { id, text } },
  input: [{ type: "message", role: "user", content: text }] as unknown as StoredResponse["input"],
  output: [],
});

async function opened(path: string) {
  const file = await ResponseFile.open(path);
  return { file, kept: new StoredResponses(limits, file) };
}

it("are found after a restart, without those that were forgotten", async () => {
  const path = join(await temporaryFolder(), "responses.jsonl");
  const first = await opened(path);
  for (const id of ["a", "b", "c"]) first.kept.keep(response(id, id, id === "c" ? "a" : null));
  first.kept.delete("b", "anna");
  await first.file.close();
  expect(statSync(path).mode & 0o077).toBe(0);
  const second = await opened(path);
  expect(second.kept.size).toBe(2);
  expect(second.kept.get("a", "anna")!.body).toEqual({ id: "a", text: "a" });
  expect(second.kept.get("a", "ben")).toBeNull();
  expect(second.kept.itemsOf("c", "anna")).toMatchObject([{ content: "a" }, { content: "c" }]);
  await second.file.close();
});

it("are none where a line is damaged or was not finished, and others stay", async () => {
  const path = join(await temporaryFolder(), "responses.jsonl");
  writeFileSync(path, 'nonsense\n{"kept":{"id":1}}\n{"kept":null}\n[]\n\n');
  const first = await opened(path);
  first.kept.keep(response("a"));
  await first.file.close();
  appendFileSync(path, `${JSON.stringify({ kept: response("b") }).slice(0, 40)}`);
  const second = await opened(path);
  expect([second.kept.size, second.kept.get("b", "anna")]).toEqual([1, null]);
  second.kept.keep(response("c"));
  await second.file.close();
  expect((await ResponseFile.open(path)).found.map(({ id }) => id)).toEqual(["a", "c"]);
});

it("take no more of the disk than twice what is kept, and a little", async () => {
  const path = join(await temporaryFolder(), "responses.jsonl");
  const { file, kept } = await opened(path);
  const sizes = [];
  for (let i = 0; i < 300; i++) {
    kept.keep(response(`r${i}`, "x".repeat(2000)));
    if (i % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 30));
    sizes.push(statSync(path, { throwIfNoEntry: false })?.size ?? 0);
  }
  await file.close();
  expect(Math.max(...sizes)).toBeLessThan(400_000);
  expect(readFileSync(path).length).toBeLessThan(200_000);
  const again = await opened(path);
  expect([...Array(10).keys()].map((i) => again.kept.get(`r${290 + i}`, "anna") !== null)).not.toContain(false);
  await again.file.close();
});

it("are of one server at a time, in a file that can be written", async () => {
  const folder = await temporaryFolder();
  const path = join(folder, "responses.jsonl");
  const file = await ResponseFile.open(path);
  await expect(ResponseFile.open(path)).rejects.toThrow(UnsupportedError);
  await file.close();
  await expect(ResponseFile.open(join(folder, "no", "such", "folder.jsonl"))).rejects.toThrow(InvalidFileError);
});
