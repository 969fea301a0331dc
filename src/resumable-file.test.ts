/** Writes that are interrupted: what is at the path is always whole, and the next write goes on where it may. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import type { ByteSink } from "./byte-source.ts";
import { writeFileResumable } from "./resumable-file.ts";

const folder = await temporaryFolder();
const content = Uint8Array.from({ length: 100 }, (_, i) => i);
let count = 0;
const newPath = () => join(folder, `file${count++}`);

/** Writes by tens, marking each; `stop` is called before each ten. Returns where it began. */
function tens(stop: (position: number) => void, began: number[]) {
  return async (sink: ByteSink) => {
    began.push(sink.position);
    while (sink.position < content.length) {
      stop(sink.position);
      await sink.write(content.subarray(sink.position, sink.position + 10));
      await sink.mark?.();
    }
  };
}

async function interrupt(path: string, at: number, key: string, noteMs?: number): Promise<number[]> {
  const began: number[] = [];
  const controller = new AbortController();
  const stop = (position: number) => {
    if (position === at) controller.abort();
    controller.signal.throwIfAborted();
  };
  const options = { key, signal: controller.signal, ...(noteMs === undefined ? {} : { noteMs }) };
  await expect(writeFileResumable(path, options, tens(stop, began))).rejects.toThrow("aborted");
  return began;
}

async function finish(path: string, key: string): Promise<number[]> {
  const began: number[] = [];
  await writeFileResumable(
    path,
    { key },
    tens(() => {}, began),
  );
  expect(new Uint8Array(readFileSync(path))).toEqual(content);
  expect(readdirSync(folder).filter((name) => name.includes("partial"))).toEqual([]);
  return began;
}

it("goes on from the last mark of an aborted write", async () => {
  const path = newPath();
  expect(await interrupt(path, 30, "a")).toEqual([0]);
  expect(existsSync(path)).toBe(false);
  expect(await interrupt(path, 70, "a", 0)).toEqual([30]);
  expect(await finish(path, "a")).toEqual([70]);
});

it("begins anew for another key, and keeps the old file until the new one is whole", async () => {
  const path = newPath();
  writeFileSync(path, "old");
  await interrupt(path, 50, "a");
  expect(readFileSync(path, "utf8")).toBe("old");
  expect(await finish(path, "b")).toEqual([0]);
});

it.each([
  ["is no JSON", () => "{"],
  ["says more than there is", (note: string) => note.replace('"bytes":50', '"bytes":51')],
  ["says less than nothing", (note: string) => note.replace('"bytes":50', '"bytes":-1')],
])("begins anew when the note %s", async (_, damage) => {
  const path = newPath();
  await interrupt(path, 50, "a");
  const note = `${path}.partial.json`;
  writeFileSync(note, damage(readFileSync(note, "utf8")));
  expect(await finish(path, "a")).toEqual([0]);
});

it("writes that were not noted are written again, as when a process was killed", async () => {
  const path = newPath();
  await interrupt(path, 50, "a");
  writeFileSync(`${path}.partial`, new Uint8Array(80).fill(255));
  writeFileSync(`${path}.partial.json`, JSON.stringify({ key: "a", bytes: 0 }));
  expect(await finish(path, "a")).toEqual([0]);
});

it("leaves nothing after any other error", async () => {
  const path = newPath();
  const fail = tens((position) => {
    if (position === 50) throw new Error("no");
  }, []);
  await expect(writeFileResumable(path, { key: "a" }, fail)).rejects.toThrow("no");
  expect(readdirSync(folder).filter((name) => name.includes("partial"))).toEqual([]);
  await expect(writeFileResumable(join(folder, "none", "x"), { key: "a" }, fail)).rejects.toThrow(
    /x: cannot be written: ENOENT/,
  );
});

it("leaves alone what another process is writing", async () => {
  const path = newPath();
  await interrupt(path, 50, "a");
  writeFileSync(`${path}.partial.pid`, String(process.ppid));
  const began: number[] = [];
  await writeFileResumable(
    path,
    { key: "a" },
    tens(() => {}, began),
  );
  expect(began).toEqual([0]);
  expect(new Uint8Array(readFileSync(path))).toEqual(content);
  expect(new Uint8Array(readFileSync(`${path}.partial`))).toEqual(content.subarray(0, 50));
  rmSync(`${path}.partial.pid`);
  expect(await finish(path, "a")).toEqual([50]);
});

it("two writes of one path at once do not mix", async () => {
  const path = newPath();
  const began: number[] = [];
  const turn = () => tens(() => {}, began);
  await Promise.all([writeFileResumable(path, { key: "a" }, turn()), writeFileResumable(path, { key: "a" }, turn())]);
  expect(began).toEqual([0, 0]);
  expect(new Uint8Array(readFileSync(path))).toEqual(content);
});
