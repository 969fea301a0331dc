/** Runs a script with the code that V8 has compiled for it at an earlier start: compiling takes most of a start else. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { cachedDataVersionTag } from "node:v8";
import { constants, Script } from "node:vm";

/** A script whose value is this function, as scripts/package/join.js makes it; its first line is a comment that says its content. */
type Wrapper = (require: NodeJS.Require, address: string) => object;

/** Compiled code of scripts that ran last so many days ago is removed, and in use it is made anew. */
const KEPT_DAYS = 30;
const DAY_MS = 24 * 3600 * 1000;

export class CompiledScript {
  readonly #script: Script;
  readonly #path: string;
  readonly #folder: string;
  /** Stands for V8's version and flags. */
  readonly #tag = cachedDataVersionTag();
  readonly #file: string;
  /** Whether the folder has the code. */
  readonly isKept: boolean;

  /**
   * Compiles the script of a path, or takes its code from a folder. `use` names what it is run for: the code of each use is kept
   * by itself, and has what it called.
   */
  constructor(path: string, folder: string, use: string) {
    const source = readFileSync(path, "latin1");
    const content = source.slice(2, source.indexOf("\n"));
    this.#path = path;
    this.#folder = folder;
    this.#file = join(folder, `${use}-${content}-${this.#tag}.bin`);
    const cachedData = readRecent(this.#file);
    const importModuleDynamically = constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    this.#script = new Script(source, { filename: path, cachedData, importModuleDynamically });
    this.isKept = cachedData !== undefined && !this.#script.cachedDataRejected;
  }

  /** Runs the script; what it exports. */
  run(): object {
    const wrapper: Wrapper = this.#script.runInThisContext();
    return wrapper(createRequire(this.#path), pathToFileURL(this.#path).href);
  }

  /** Keeps the code of what has run, where the folder has none. A folder that cannot be written is left alone. */
  keep(): void {
    // With flags that were set meanwhile, V8 would not take it.
    if (this.isKept || cachedDataVersionTag() !== this.#tag) return;
    const unfinished = `${this.#file}.${process.pid}`;
    try {
      mkdirSync(this.#folder, { recursive: true });
      writeFileSync(unfinished, this.#script.createCachedData());
      renameSync(unfinished, this.#file);
      for (const name of readdirSync(this.#folder)) {
        const file = join(this.#folder, name);
        if (!isRecent(file)) rmSync(file, { force: true });
      }
    } catch {
      if (existsSync(unfinished)) rmSync(unfinished);
    }
  }
}

function isRecent(file: string): boolean {
  const status = statSync(file, { throwIfNoEntry: false });
  return status !== undefined && Date.now() - status.mtimeMs < KEPT_DAYS * DAY_MS;
}

function readRecent(file: string): Buffer | undefined {
  try {
    return isRecent(file) ? readFileSync(file) : undefined;
  } catch {
    return undefined;
  }
}
