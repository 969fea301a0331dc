/** Writes that are interrupted: what is at the path is always whole, and the next write goes on where it may. */
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { basename, join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import type { ByteSink } from "./byte-source.ts";
import { claimPath } from "./path-claim.ts";
import { writeFileResumable } from "./resumable-file.ts";
import { claimOf } from "./unfinished-file.ts";

const folder = await temporaryFolder();
const content = Uint8Array.from({ length: 100 }, (_, i) => i);
let count = 0;
const newPath = () => join(folder, `file${count++}`);
const noteOf = (path: string) => `${path}.partial.json`;

/** Names of all that lies beside a path. */
const unfinished = (path: string) => readdirSync(folder).filter((name) => name.startsWith(`${basename(path)}.`));

/** Path of the one file that a path is unfinished in. */
const partialOf = (path: string) => join(folder, unfinished(path).find((name) => name.endsWith(".partial"))!);

/** Names the unfinished files as if their process had ended, so that those that no note names are left over. */
function endWriters(path: string): void {
  for (const name of unfinished(path))
    renameSync(join(folder, name), join(folder, name.replace(`-${process.pid}-`, "-4194304-")));
}

/** Changes the note, as another writer or a damage would have it. */
function renote(path: string, changes: { readonly isLeft?: boolean; readonly file?: string; readonly state?: object }) {
  const note = JSON.parse(readFileSync(noteOf(path), "utf8"));
  writeFileSync(noteOf(path), JSON.stringify({ ...note, ...changes, state: { ...note.state, ...changes.state } }));
}

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
  expect(unfinished(path)).toEqual([]);
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
  ["is no JSON", (path: string) => writeFileSync(noteOf(path), "{")],
  ["is null", (path: string) => writeFileSync(noteOf(path), "null")],
  ["says more than there is", (path: string) => renote(path, { state: { bytes: 51 } })],
  ["says less than nothing", (path: string) => renote(path, { state: { bytes: -1 } })],
  ["names no unfinished file", (path: string) => renote(path, { file: basename(path) })],
  ["names one elsewhere", (path: string) => renote(path, { file: `../${basename(partialOf(path))}` })],
  ["names one that is gone", (path: string) => rmSync(partialOf(path))],
])("begins anew when the note %s", async (_, damage) => {
  const path = newPath();
  await interrupt(path, 50, "a");
  damage(path);
  endWriters(path);
  expect(await finish(path, "a")).toEqual([0]);
});

it("writes that were not noted are written again, as when a process was killed", async () => {
  const path = newPath();
  await interrupt(path, 50, "a");
  writeFileSync(partialOf(path), new Uint8Array(80).fill(255));
  renote(path, { state: { bytes: 0 } });
  expect(await finish(path, "a")).toEqual([0]);
});

it("goes on from a copy where the writer may still write, as one of another machine", async () => {
  const path = newPath();
  await interrupt(path, 50, "a");
  const theirs = `${path}.0badcafe-17-4711-0123456789ab.partial`;
  renameSync(partialOf(path), theirs);
  renote(path, { isLeft: false, file: basename(theirs) });
  const handle = openSync(theirs, "r+");
  const began: number[] = [];
  const stop = () => writeSync(handle, new Uint8Array(100).fill(255), 0, 100, 0);
  await writeFileResumable(path, { key: "a" }, tens(stop, began));
  closeSync(handle);
  expect(began).toEqual([50]);
  expect(new Uint8Array(readFileSync(path))).toEqual(content);
  expect(unfinished(path)).toEqual([]);
});

it("one that was stopped while another took over ends as if it had come first", async () => {
  const path = newPath();
  const write = async (sink: ByteSink) => {
    await sink.write(new Uint8Array(3));
    // The other has finished, and removed what this one has written.
    rmSync(partialOf(path));
    writeFileSync(path, "theirs");
  };
  await writeFileResumable(path, { key: "a" }, write);
  expect(readFileSync(path, "utf8")).toBe("theirs");
});

it("leaves nothing after any other error", async () => {
  const path = newPath();
  const fail = tens((position) => {
    if (position === 50) throw new Error("no");
  }, []);
  await expect(writeFileResumable(path, { key: "a" }, fail)).rejects.toThrow("no");
  expect(unfinished(path)).toEqual([]);
  await expect(writeFileResumable(join(folder, "none", "x"), { key: "a" }, fail)).rejects.toThrow(
    /x: cannot be written: ENOENT/,
  );
});

it("leaves alone what another is writing", async () => {
  const path = newPath();
  await interrupt(path, 50, "a");
  const claim = await claimPath(claimOf(path));
  const began: number[] = [];
  await writeFileResumable(
    path,
    { key: "a" },
    tens(() => {}, began),
  );
  expect(began).toEqual([0]);
  expect(new Uint8Array(readFileSync(path))).toEqual(content);
  expect(new Uint8Array(readFileSync(partialOf(path)))).toEqual(content.subarray(0, 50));
  await claim.release();
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
