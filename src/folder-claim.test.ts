/** Claims of folders: one process at a time, and none for ever. */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import { InvalidFileError } from "./errors.ts";
import { claimFolder } from "./folder-claim.ts";

const folder = join(await temporaryFolder(), "parts");

it("is refused while another process has the folder, and given up", async () => {
  writeFileSync(`${folder}.pid`, String(process.ppid));
  await expect(claimFolder(folder)).rejects.toThrow(
    new InvalidFileError(
      folder,
      `process ${process.ppid} works there: wait for it, or write to another path (remove ${folder}.pid when that is another program)`,
    ),
  );
  expect(existsSync(`${folder}.pid`)).toBe(true);
});

it("takes over what a process that has ended, or a power cut, left", async () => {
  for (const left of ["", "0", "4194305", String(process.pid), "no number"]) {
    writeFileSync(`${folder}.pid`, left);
    const release = await claimFolder(folder);
    await release();
    expect(existsSync(`${folder}.pid`), left).toBe(false);
  }
});

it("is refused where nothing can be written", async () => {
  await expect(claimFolder(join(folder, "none", "parts"))).rejects.toThrow("parts.pid: cannot be written: ENOENT");
});
