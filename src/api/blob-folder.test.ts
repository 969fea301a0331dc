/** Blobs in a folder: whole or not at all, within a limit, whoever else writes to it and whatever became of its files. */
import { mkdir, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { newWriterId } from "../writer-id.ts";
import { type BlobFolder, openBlobFolder, ownedName } from "./blob-folder.ts";

const bytesOf = (seed: number, length = 1000) => Uint8Array.from({ length }, (_, i) => (i * 31 + seed * 17) & 255);

async function keep(blobs: BlobFolder, names: readonly number[], length?: number): Promise<void> {
  for (const name of names) blobs.write(`blob${name}`, () => bytesOf(name, length));
  await blobs.flush();
}

async function found(blobs: BlobFolder, name: number, length = 1000): Promise<boolean> {
  const target = new Uint8Array(length).fill(9);
  const isFound = await blobs.read(`blob${name}`, target);
  if (isFound) expect(target).toEqual(bytesOf(name, length));
  return isFound;
}

async function bytesIn(folder: string): Promise<number> {
  let sum = 0;
  for (const name of await readdir(folder)) sum += (await stat(join(folder, name))).size;
  return sum;
}

describe("blobs", () => {
  test("are found by their names, in another process, too", async () => {
    const folder = await temporaryFolder();
    await keep(await openBlobFolder(folder, 1e6), [1, 2]);
    const blobs = await openBlobFolder(folder, 1e6);
    expect([await blobs.has("blob1"), await blobs.has("blob3")]).toEqual([true, false]);
    expect([await found(blobs, 1), await found(blobs, 2), await found(blobs, 3)]).toEqual([true, true, false]);
    expect((await stat(join(folder, "blob1.kv"))).mode & 0o077).toBe(0);
  });

  test("are those of the time when they are written, and none where they are gone by then", async () => {
    const folder = await temporaryFolder();
    const blobs = await openBlobFolder(folder, 1e6);
    blobs.write("gone", () => null);
    await keep(blobs, [1]);
    expect(await readdir(folder)).toEqual(["blob1.kv"]);
  });

  test("that are damaged, cut, longer, renamed or of another version are none, and are removed", async () => {
    const folder = await temporaryFolder();
    const blobs = await openBlobFolder(folder, 1e6);
    await keep(blobs, [1]);
    const path = join(folder, "blob1.kv");
    const right = await readFile(path);
    const damaged = Array.from({ length: right.length }, (_, at) => {
      const bytes = Uint8Array.from(right);
      bytes[at]! ^= 1 << (at % 8);
      return bytes;
    }).filter((_, at) => at < 60 || at % 97 === 0);
    const cut = [0, 1, 15, 47, 48, right.length - 1].map((length) => right.subarray(0, length));
    for (const bytes of [...damaged, ...cut, new Uint8Array(right.length)]) {
      await writeFile(path, bytes);
      expect([await found(blobs, 1), await blobs.has("blob1")]).toEqual([false, false]);
    }
    await writeFile(join(folder, "blob2.kv"), right);
    expect(await found(blobs, 2)).toBe(false);
    await writeFile(path, right);
    expect(await blobs.read("blob1", new Uint8Array(999))).toBe(false);
    await keep(blobs, [1]);
    expect(await found(blobs, 1)).toBe(true);
  });

  test("whose place something else has are none", async () => {
    const folder = await temporaryFolder();
    const blobs = await openBlobFolder(folder, 1e6);
    await mkdir(join(folder, "blob1.kv"));
    expect([await blobs.has("blob1"), await found(blobs, 1)]).toEqual([false, false]);
    await keep(blobs, [1, 2]);
    expect(await found(blobs, 1)).toBe(false);
  });

  test("cannot be written for a while where the folder is gone, and nothing fails", async () => {
    const folder = join(await temporaryFolder(), "inner");
    await mkdir(folder);
    const blobs = await openBlobFolder(folder, 1e6);
    await rm(folder, { recursive: true });
    await keep(blobs, [1, 2]);
    expect(await found(blobs, 1)).toBe(false);
    await expect(openBlobFolder(join(folder, "none"), 1e6)).rejects.toThrow(/cannot be written/);
    await expect(openBlobFolder(folder, 0)).rejects.toThrow(/bytes/);
  });
});

describe("a limit", () => {
  test("is kept, and what was unused for the longest time goes first", async () => {
    const folder = await temporaryFolder();
    const blobs = await openBlobFolder(folder, 40_000);
    for (let name = 0; name < 20; name++) {
      await keep(blobs, [name]);
      const time = Date.now() / 1000 - 1000 + name;
      await utimes(join(folder, `blob${name}.kv`), time, time);
    }
    // Another process finds one of use, which has not noted that lately.
    expect(await found(await openBlobFolder(folder, 40_000), 0)).toBe(true);
    for (let name = 20; name < 100; name++) {
      await keep(blobs, [name]);
      expect(await bytesIn(folder)).toBeLessThanOrEqual(40_000);
      if (name === 50) expect([await blobs.has("blob0"), await blobs.has("blob1")]).toEqual([true, false]);
    }
    expect(await bytesIn(folder)).toBeGreaterThan(25_000);
    await keep(blobs, [200], 39_900);
    expect(await blobs.has("blob200")).toBe(false);
  });

  test("is kept by several who write at the same time", async () => {
    const folder = await temporaryFolder();
    const all = await Promise.all([1, 2, 3, 4].map(() => openBlobFolder(folder, 100_000)));
    for (let round = 0; round < 40; round++) {
      await Promise.all(all.map((blobs, i) => keep(blobs, [round * 8 + i, round * 8 + i + 4])));
      expect(await bytesIn(folder)).toBeLessThanOrEqual(100_000);
    }
    expect(await bytesIn(folder)).toBeGreaterThan(50_000);
  });

  test("counts unfinished files, of which those of processes that have ended are removed", async () => {
    const folder = await temporaryFolder();
    const [here, , started, random] = newWriterId().split("-");
    const ended = join(folder, `blobx.kv.${[here, 999_999_999, started, random].join("-")}.part`);
    const running = join(folder, `bloby.kv.${newWriterId()}.part`);
    for (const path of [ended, running]) await writeFile(path, new Uint8Array(10_000));
    await writeFile(join(folder, "other.txt"), "not a blob");
    await keep(await openBlobFolder(folder, 30_000), [1]);
    expect((await readdir(folder)).sort()).toEqual(["blob1.kv", running.split("/").at(-1), "other.txt"].sort());
  });
});

describe("a flood of one owner", () => {
  test("takes nothing from another that has less, in another process, too", async () => {
    const folder = await temporaryFolder();
    const limit = 100 * (1000 + 48);
    const write = async (blobs: BlobFolder, owner: string, names: readonly number[]) => {
      for (const name of names) blobs.write(ownedName(owner, "model", `blob${name}`), () => bytesOf(name));
      await blobs.flush();
    };
    const countOf = async (blobs: BlobFolder, owner: string, names: readonly number[]) => {
      let count = 0;
      for (const name of names)
        if (await blobs.read(ownedName(owner, "model", `blob${name}`), new Uint8Array(1000))) count++;
      return count;
    };
    const names = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);
    const quiet = await openBlobFolder(folder, limit);
    await write(quiet, "anna", names(0, 30));
    const flooding = await openBlobFolder(folder, limit);
    for (let i = 0; i < 10; i++) await write(flooding, "ben", names(1000 + 100 * i, 100));
    expect(await bytesIn(folder)).toBeLessThanOrEqual(limit);
    expect(await countOf(quiet, "anna", names(0, 30))).toBe(30);
    // Whoever floods finds the last of what he had.
    expect(await countOf(flooding, "ben", names(1990, 10))).toBe(10);
    expect(ownedName("anna", "model", "blob1")).not.toContain("anna");
  });
});

describe("a limit of an owner", () => {
  const names = Array.from({ length: 30 }, (_, i) => i);
  const write = async (blobs: BlobFolder, owner: string, kind: string) => {
    for (const name of names) blobs.write(ownedName(owner, kind, `blob${name}`), () => bytesOf(name));
    await blobs.flush();
  };
  const foundOf = async (blobs: BlobFolder, owner: string, kind: string) => {
    const found: number[] = [];
    for (const name of names) if (await blobs.has(ownedName(owner, kind, `blob${name}`))) found.push(name);
    return found;
  };

  test("is kept for each kind, and the first that were written stay for a while", async () => {
    const folder = await temporaryFolder();
    const blobs = await openBlobFolder(folder, 1e6);
    blobs.limit("ben", "model", 10_000);
    await write(blobs, "ben", "model");
    await write(blobs, "ben", "other");
    await write(blobs, "anna", "model");
    expect(await foundOf(blobs, "ben", "model")).toEqual(names.slice(0, 10));
    expect(await foundOf(blobs, "ben", "other")).toEqual(names);
    expect(await foundOf(blobs, "anna", "model")).toEqual(names);
  });

  test("gives up what was unused for longest, and nothing of others", async () => {
    const folder = await temporaryFolder();
    const first = await openBlobFolder(folder, 1e6);
    await write(first, "anna", "model");
    await write(first, "ben", "model");
    for (const [i, file] of (await readdir(folder)).sort().entries()) {
      const time = Date.now() / 1000 - 3600 + i;
      await utimes(join(folder, file), time, time);
    }
    const blobs = await openBlobFolder(folder, 1e6);
    blobs.limit("ben", "model", 16_000);
    blobs.write(ownedName("ben", "model", "new"), () => bytesOf(99));
    await blobs.flush();
    expect(await blobs.has(ownedName("ben", "model", "new"))).toBe(true);
    const left = await foundOf(blobs, "ben", "model");
    expect(left).toHaveLength(13);
    expect(await foundOf(blobs, "anna", "model")).toEqual(names);
  });
});
