/** Claims of paths: one task at a time, and none for ever; across processes in test/claims.test.ts. */
import { existsSync, lstatSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, it, vi } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import { type Claim, claimPath, tryClaimPath } from "./path-claim.ts";
import { newWriterId } from "./writer-id.ts";

const root = await temporaryFolder();
let count = 0;
const newPath = () => join(root, `parts${count++}`);

/** The lock of a process on another machine; it counts its beats behind the line. */
const foreign = (beat = "") => `{"id":"0badcafe-17-4711-0123456789ab","host":"replica-2","pid":17}\n${beat}`;

/** Writes a lock again and again, as its holder does, until it is stopped. */
function beat(lock: string): () => void {
  let beats = 0;
  const timer = setInterval(() => writeFileSync(lock, foreign(String(++beats))), 100);
  return () => clearInterval(timer);
}

it("says which process works there, on which machine", async () => {
  const path = newPath();
  const stop = beat(`${path}.lock`);
  writeFileSync(`${path}.lock`, foreign());
  expect(await tryClaimPath(path)).toBe("process 17 on replica-2");
  stop();
});

it("waits for one that works there, and tells it once", async () => {
  const path = newPath();
  const claim = await claimPath(path);
  const told: string[] = [];
  const second = claimPath(path, { onWait: (reason) => told.push(reason) });
  expect(await tryClaimPath(path)).toBe(`process ${process.pid} on ${hostname()}`);
  await expect.poll(() => told.length, { timeout: 30_000 }).toBeGreaterThan(0);
  expect(told).toEqual([
    `${path}: waits for process ${process.pid} on ${hostname()}, which works there (${path}.lock)`,
  ]);
  expect(await claim.isHeld()).toBe(true);
  await claim.release();
  await (await second).release();
  expect(existsSync(`${path}.lock`)).toBe(false);
});

it("a wait ends with its signal", async () => {
  const path = newPath();
  const claim = await claimPath(path);
  const controller = new AbortController();
  const waiting = claimPath(path, { signal: controller.signal });
  controller.abort(new Error("enough"));
  await expect(waiting).rejects.toThrow("enough");
  await claim.release();
});

it("beats while work blocks the process", async () => {
  const path = newPath();
  const claim = await claimPath(path);
  const before = readFileSync(`${path}.lock`, "utf8");
  const end = performance.now() + 30_000;
  while (performance.now() < end && readFileSync(`${path}.lock`, "utf8") === before);
  expect(readFileSync(`${path}.lock`, "utf8")).toMatch(/\n\d+$/);
  await claim.release();
});

it("takes over at once what a process of this machine has left that ended, or whose number is another's now", async () => {
  const [place, pid, started] = newWriterId().split("-");
  const ended = [`${place}-4194304-${started}`, `${place}-${pid}-1`, `${place}-${process.ppid}-1`];
  for (const id of ended) {
    const path = newPath();
    writeFileSync(`${path}.lock`, `{"id":"${id}-0123456789ab","host":"here","pid":1}\n`);
    const claim = (await tryClaimPath(path)) as Claim;
    expect(await claim.isHeld(), id).toBe(true);
    await claim.release();
    expect(existsSync(`${path}.lock`), id).toBe(false);
  }
});

it("takes over what stays as it is for seconds: of another machine, of a power cut, of other programs", async () => {
  const lefts = [foreign("12"), "", "123", "no JSON", "{}", "null", null];
  await Promise.all(
    lefts.map(async (left) => {
      const path = newPath();
      if (left === null) symlinkSync(join(root, "nowhere"), `${path}.lock`);
      else writeFileSync(`${path}.lock`, left);
      const told: string[] = [];
      const claim = (await tryClaimPath(path, { onWait: (reason) => told.push(reason) })) as Claim;
      expect(told, String(left)).toEqual([expect.stringContaining(": waits for ")]);
      expect(await claim.isHeld(), String(left)).toBe(true);
      await claim.release();
      expect(lstatSync(`${path}.lock`, { throwIfNoEntry: false }), String(left)).toBeUndefined();
    }),
  );
});

it("knows when another has taken over, and leaves that one's claim alone", async () => {
  const path = newPath();
  const claim = await claimPath(path);
  writeFileSync(`${path}.lock`, foreign());
  // As after some seconds in which this process was stopped.
  vi.spyOn(Date, "now").mockReturnValue(Date.now() + 6000);
  expect(await claim.isHeld()).toBe(false);
  vi.restoreAllMocks();
  await claim.release();
  expect(readFileSync(`${path}.lock`, "utf8")).toContain("replica-2");
});

it("of many at once, one has it at a time", async () => {
  const path = newPath();
  writeFileSync(`${path}.lock`, `{"id":"${newWriterId().split("-")[0]}-4194304-1-0123456789ab"}\n`);
  let working = 0;
  let most = 0;
  const work = async () => {
    const claim = await claimPath(path);
    most = Math.max(most, ++working);
    await delay(5);
    working--;
    await claim.release();
  };
  await Promise.all(Array.from({ length: 12 }, work));
  expect(most).toBe(1);
});

it("is refused where nothing can be written", async () => {
  await expect(claimPath(join(root, "none", "parts"))).rejects.toThrow("parts.lock: cannot be written: ENOENT");
});
