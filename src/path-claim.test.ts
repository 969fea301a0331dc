/** Claims of paths: one task at a time, and none for ever. */
import { existsSync, lstatSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import { InvalidFileError } from "./errors.ts";
import { claimPath } from "./path-claim.ts";

const folder = join(await temporaryFolder(), "parts");

it("is refused while another process has the folder, and given up", async () => {
  writeFileSync(`${folder}.pid`, String(process.ppid));
  await expect(claimPath(folder)).rejects.toThrow(
    new InvalidFileError(
      folder,
      `process ${process.ppid} works there: wait for it, or write to another path (remove ${folder}.pid when that is another program)`,
    ),
  );
  expect(existsSync(`${folder}.pid`)).toBe(true);
});

it("is refused when the note says who has it only a moment later", async () => {
  const path = `${folder}-3`;
  writeFileSync(`${path}.pid`, "");
  const writing = setTimeout(() => writeFileSync(`${path}.pid`, String(process.ppid)), 50);
  await expect(claimPath(path)).rejects.toThrow(`process ${process.ppid} works there`);
  clearTimeout(writing);
});

it("is refused to a second task of the process, too", async () => {
  const release = await claimPath(`${folder}-2`);
  await expect(claimPath(`${folder}-2`)).rejects.toThrow(`process ${process.pid} works there`);
  await release();
  await (await claimPath(`${folder}-2`))();
});

it("takes over what a process that has ended, or a power cut, left", async () => {
  for (const left of ["", "0", "4194305", String(process.pid), "no number"]) {
    writeFileSync(`${folder}.pid`, left);
    const release = await claimPath(folder);
    await release();
    expect(existsSync(`${folder}.pid`), left).toBe(false);
  }
  symlinkSync(join(folder, "nowhere"), `${folder}.pid`);
  await (await claimPath(folder))();
  expect(lstatSync(`${folder}.pid`, { throwIfNoEntry: false })).toBeUndefined();
});

it("is refused where nothing can be written", async () => {
  await expect(claimPath(join(folder, "none", "parts"))).rejects.toThrow("parts.pid: cannot be written: ENOENT");
});
