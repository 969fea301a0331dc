/** Unfinished work in files, which one task at a time may do: `<path>.pid` says which process does. */
import { readFile, rm, writeFile } from "node:fs/promises";
import { InvalidFileError } from "./errors.ts";
import { cannotWrite, isRunning } from "./node-file.ts";

/** Notes that this process has. */
const own = new Set<string>();

export interface Claim {
  /** The process that has the path; null when it was free. */
  readonly holder: number | null;
  /** Gives it up, if this claim has it. */
  release(): Promise<void>;
}

/** Claims a file or folder, which need not be there. A claim of a process that has ended is taken over. */
export async function tryClaim(path: string): Promise<Claim> {
  const note = `${path}.pid`;
  const refused = (holder: number): Claim => ({ holder, release: async () => {} });
  if (own.has(note)) return refused(process.pid);
  own.add(note);
  try {
    while (!(await make(note))) {
      const pid = Number(await readFile(note, "utf8").catch(() => ""));
      if (pid > 0 && pid !== process.pid && isRunning(pid)) {
        own.delete(note);
        return refused(pid);
      }
      await rm(note, { force: true });
    }
  } catch (error) {
    own.delete(note);
    throw error;
  }
  return {
    holder: null,
    async release() {
      await rm(note, { force: true });
      own.delete(note);
    },
  };
}

/** Writes the note; false when there is one. */
function make(note: string): Promise<boolean> {
  return writeFile(note, String(process.pid), { flag: "wx" }).then(
    () => true,
    (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EEXIST") throw cannotWrite(note, cause);
      return false;
    },
  );
}

/** Claims a file or folder; returns what gives it up. InvalidFileError while another has it. */
export async function claimPath(path: string): Promise<() => Promise<void>> {
  const { holder, release } = await tryClaim(path);
  if (holder === null) return release;
  throw new InvalidFileError(
    path,
    `process ${holder} works there: wait for it, or write to another path (remove ${path}.pid when that is another program)`,
  );
}
