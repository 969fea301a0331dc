/** Folders of unfinished work, which one process at a time may use: `<folder>.pid` says which one does. */
import { readFile, rm, writeFile } from "node:fs/promises";
import { InvalidFileError } from "./errors.ts";
import { cannotWrite, isRunning } from "./node-file.ts";

/**
 * Claims a folder, which need not be there; returns what gives it up. InvalidFileError while another process has it. A claim
 * of a process that has ended is taken over.
 */
export async function claimFolder(folder: string): Promise<() => Promise<void>> {
  const note = `${folder}.pid`;
  const make = () =>
    writeFile(note, String(process.pid), { flag: "wx" }).then(
      () => true,
      (cause: NodeJS.ErrnoException) => {
        if (cause.code !== "EEXIST") throw cannotWrite(note, cause);
        return false;
      },
    );
  for (let isMade = await make(); !isMade; isMade = await make()) {
    const pid = Number(await readFile(note, "utf8").catch(() => ""));
    if (pid > 0 && pid !== process.pid && isRunning(pid))
      throw new InvalidFileError(
        folder,
        `process ${pid} works there: wait for it, or write to another path (remove ${note} when that is another program)`,
      );
    await rm(note, { force: true });
  }
  return () => rm(note, { force: true });
}
