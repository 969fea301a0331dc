/**
 * Bytes by names in a folder, within a limit of bytes that several processes keep together. A blob is a file:
 *
 *     0 u32 magic "LBKV"    4 u32 version    8 u32 bytes of the content    12 u32 CRC-32 of it
 *     16 [32] SHA-256 of the name
 *     48 content
 *
 * A process may be killed at any time: files appear whole, under their names, when they are renamed.
 */
import { createHash } from "node:crypto";
import { constants, type FileHandle, open, readdir, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { checkWhole } from "../arguments.ts";
import { logInfo } from "../log.ts";
import { checkWritable } from "../node-file.ts";
import { isRunning, newWriterId, WRITER_ID } from "../writer-id.ts";

const MAGIC = 0x564b424c;
const VERSION = 1;
const HEADER_BYTES = 48;
const ENDING = ".kv";
/** Of what is over the limit, so much more is removed at once, as a part of the limit: it is not full again soon. */
const SPARE_SHARE = 1 / 8;
/** What is left of the limit is written in so many parts, each after a look at what others have written. */
const LOOKS = 4;
/** Unfinished files of processes that cannot be seen are left over after so long. */
const LEFTOVER_MS = 3_600_000;
/** How often a use of a blob is noted. */
const TOUCH_MS = 60_000;
/** How long nothing is written after a write has failed, as on a full disk, or of whoever has all that he may have. */
const PAUSE_MS = 60_000;
const NOTED_MAX = 100_000;

interface Waiting {
  readonly name: string;
  readonly bytes: () => Uint8Array | null;
}

/** Digits of what owners, and kinds of what they have, are told apart by. */
const DIGITS = 8;
/** What was used no longer ago is not given up for others of the same owner and kind: the first pages of a prompt for its last. */
const YOUNG_MS = 600_000;

/** The name of a blob of a kind that is of an owner: of those of whoever has most, the longest unused is given up first. */
export function ownedName(owner: string, kind: string, name: string): string {
  return `${groupOf(owner, kind)}.${name}`;
}

function groupOf(...parts: [owner: string, kind: string]): string {
  return parts.map((part) => createHash("sha256").update(part).digest("hex").slice(0, DIGITS)).join("-");
}

/** A file of the folder. */
interface Found {
  readonly path: string;
  /** Files of one owner and kind have the same; it begins with what those of one owner have. */
  readonly group: string;
  readonly bytes: number;
  readonly usedAt: number;
  /** Whether it is one that a process that has ended did not finish. */
  readonly isLeftover: boolean;
}

/** Opens a folder. InvalidFileError where nothing can be written to it. */
export async function openBlobFolder(folder: string, limit: number): Promise<BlobFolder> {
  checkWhole("bytes", limit, 1);
  await checkWritable(join(folder, "new"));
  return new BlobFolder(folder, limit);
}

/** Blobs of a folder, as one process has them. */
export class BlobFolder {
  readonly #folder: string;
  readonly #limit: number;
  readonly #waiting: Waiting[] = [];
  /** When blobs were last noted as used, by names. */
  readonly #usedAt = new Map<string, number>();
  #writing: Promise<void> | null = null;
  /** Bytes that may be written before the next look at the folder. */
  #allowance = 0;
  #pausedUntil = 0;
  /** Most bytes of groups' blobs. */
  readonly #quotas = new Map<string, number>();
  /** When it is looked again for room in groups that had none. */
  readonly #fullUntil = new Map<string, number>();
  /** Bytes of groups' blobs, as of the last look and what was written since. */
  #bytesOf = new Map<string, number>();

  /** Internal: `openBlobFolder` makes them. */
  constructor(folder: string, limit: number) {
    this.#folder = folder;
    this.#limit = limit;
  }

  /** Whether there is a blob of a name, damaged or not. */
  async has(name: string): Promise<boolean> {
    return (await stat(this.#pathOf(name)).catch(() => null))?.isFile() ?? false;
  }

  /** Fills `target` with a blob; false for one that is not there, is damaged, or has another length. */
  async read(name: string, target: Uint8Array): Promise<boolean> {
    const path = this.#pathOf(name);
    let handle: FileHandle | null = null;
    try {
      handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
      const header = new Uint8Array(HEADER_BYTES);
      const { bytesRead } = await handle.readv([header, target], 0);
      const isWhole = bytesRead === HEADER_BYTES + target.length;
      if (isWhole && Buffer.compare(header, headerOf(name, target)) === 0) {
        this.touch([name]);
        return true;
      }
      await rm(path, { force: true });
      logInfo(() => `${path}: is damaged, and was removed`);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    } finally {
      await handle?.close().catch(() => {});
    }
    return false;
  }

  /** Writes a blob when those before it are written; `bytes` may give null then, for none. */
  write(name: string, bytes: () => Uint8Array | null): void {
    this.#waiting.push({ name, bytes });
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null;
    });
  }

  /** Resolves when all is written that was given so far. */
  async flush(): Promise<void> {
    while (this.#writing) await this.#writing;
  }

  /** Keeps no more bytes of a kind of an owner than so many, but for what others write at the same time. */
  limit(owner: string, kind: string, bytes: number): void {
    this.#quotas.set(groupOf(owner, kind), bytes);
  }

  /** Notes that blobs are of use: the later ones are given up before the first ones. */
  touch(names: readonly string[]): void {
    const now = Date.now();
    for (const [index, name] of names.entries()) {
      if (now - (this.#usedAt.get(name) ?? 0) < TOUCH_MS) continue;
      this.#note(name, now);
      const time = (now - index) / 1000;
      utimes(this.#pathOf(name), time, time).catch(() => this.#usedAt.delete(name));
    }
  }

  #note(name: string, now: number): void {
    this.#usedAt.delete(name);
    this.#usedAt.set(name, now);
    if (this.#usedAt.size > NOTED_MAX) this.#usedAt.delete(this.#usedAt.keys().next().value!);
  }

  async #writeAll(): Promise<void> {
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) {
      if (Date.now() < this.#pausedUntil) continue;
      try {
        await this.#writeOne(next);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === undefined) throw error;
        this.#pausedUntil = Date.now() + PAUSE_MS;
        logInfo(() => `${this.#folder}: nothing is kept for a minute: ${(error as Error).message}`);
      }
    }
  }

  async #writeOne({ name, bytes }: Waiting): Promise<void> {
    // One that was neither read nor written by this process may be damaged, and is written anew.
    if (this.#usedAt.has(name) && (await this.has(name))) {
      this.touch([name]);
      return;
    }
    const content = bytes();
    if (!content || !(await this.#makeRoom(groupIn(name), content.length))) return;
    const path = this.#pathOf(name);
    const temporary = `${path}.${newWriterId()}.part`;
    const handle = await open(temporary, "wx", 0o600);
    try {
      await handle.writev([headerOf(name, content), content]);
      await handle.close();
      await rename(temporary, path);
    } catch (error) {
      await handle.close().catch(() => {});
      await rm(temporary, { force: true });
      throw error;
    }
    this.#note(name, Date.now());
  }

  /** Whether a blob of so many bytes may be written in a group, after others were removed for that. */
  async #makeRoom(group: string, bytes: number): Promise<boolean> {
    const written = HEADER_BYTES + bytes;
    if (Date.now() < (this.#fullUntil.get(group) ?? 0)) return false;
    const isFull = () => this.#bytesIn(group) + bytes > this.#quotaOf(group);
    if (this.#allowance < written || isFull()) await this.#clear(group, bytes);
    if (isFull()) this.#fullUntil.set(group, Date.now() + PAUSE_MS);
    if (this.#allowance < written || isFull()) return false;
    this.#allowance -= written;
    this.#bytesOf.set(group, this.#bytesIn(group) + bytes);
    return true;
  }

  #bytesIn(group: string): number {
    return this.#bytesOf.get(group) ?? 0;
  }

  #quotaOf(group: string): number {
    return this.#quotas.get(group) ?? Number.POSITIVE_INFINITY;
  }

  /** Looks at the folder, and removes what is too much for a blob of so many bytes in a group, and some more at once. */
  async #clear(group: string, bytes: number): Promise<void> {
    const all = await this.#look();
    let total = all.reduce((sum, found) => sum + found.bytes, 0);
    this.#bytesOf = new Map();
    for (const found of all) this.#bytesOf.set(found.group, this.#bytesIn(found.group) + found.bytes - HEADER_BYTES);
    const remove = async ({ path, group, bytes: freed }: Found) => {
      await rm(path, { force: true });
      total -= freed;
      this.#bytesOf.set(group, this.#bytesIn(group) - freed + HEADER_BYTES);
    };
    const quota = this.#quotaOf(group);
    const mostOwn = quota * (1 - SPARE_SHARE) - bytes;
    const isOwnFull = this.#bytesIn(group) + bytes > quota;
    const isOwn = (found: Found) => found.group === group && Date.now() - found.usedAt > YOUNG_MS;
    const removed = new Set<Found>();
    for (const found of isOwnFull ? all.filter(isOwn) : []) {
      if (this.#bytesIn(group) <= mostOwn) break;
      await remove(found);
      removed.add(found);
    }
    const needed = LOOKS * (HEADER_BYTES + bytes);
    const isFull = total > this.#limit - needed;
    const most = this.#limit - Math.max(needed, isFull ? this.#limit * SPARE_SHARE : 0);
    for (const found of inTurn(all.filter((one) => !removed.has(one)))) {
      if (total <= most && !found.isLeftover) break;
      await remove(found);
    }
    this.#allowance = Math.floor((this.#limit - total) / LOOKS);
  }

  /** All files, leftovers first, and then those that were unused for the longest time. */
  async #look(): Promise<Found[]> {
    const names = (await readdir(this.#folder)).filter((name) => name.endsWith(ENDING) || UNFINISHED.test(name));
    const found: Found[] = [];
    for (const name of names) {
      const path = join(this.#folder, name);
      const status = await stat(path).catch(() => null);
      if (!status?.isFile()) continue;
      const writer = UNFINISHED.exec(name)?.[1];
      const isOver = writer && (isRunning(writer) === false || Date.now() - status.mtimeMs > LEFTOVER_MS);
      found.push({
        path,
        group: groupIn(name),
        bytes: status.size,
        usedAt: status.mtimeMs,
        isLeftover: Boolean(isOver),
      });
    }
    return found.sort((a, b) => Number(b.isLeftover) - Number(a.isLeftover) || a.usedAt - b.usedAt);
  }

  #pathOf(name: string): string {
    return join(this.#folder, `${name}${ENDING}`);
  }
}

/** Files in the order in which they are given up: leftovers, and then of whoever has most bytes the longest unused. */
function* inTurn(all: readonly Found[]): Generator<Found> {
  const owners = new Map<string, { readonly files: Found[]; bytes: number }>();
  for (const found of all) {
    if (found.isLeftover) {
      yield found;
      continue;
    }
    const owner = found.group.slice(0, DIGITS);
    const own = owners.get(owner) ?? { files: [], bytes: 0 };
    owners.set(owner, own);
    own.files.push(found);
    own.bytes += found.bytes;
  }
  for (;;) {
    let most: { readonly files: Found[]; bytes: number } | null = null;
    for (const own of owners.values()) if (own.files.length > 0 && own.bytes > (most?.bytes ?? -1)) most = own;
    const next = most?.files.shift();
    if (!next) return;
    most!.bytes -= next.bytes;
    yield next;
  }
}

/** The group of a blob or file of a name; "" for one that has none. */
function groupIn(name: string): string {
  return name.slice(0, Math.max(0, name.indexOf(".")));
}

const UNFINISHED = new RegExp(`\\${ENDING}\\.(${WRITER_ID})\\.part$`);

function headerOf(name: string, content: Uint8Array): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES);
  const view = new DataView(header.buffer);
  for (const [i, value] of [MAGIC, VERSION, content.length, crc32(content)].entries())
    view.setUint32(4 * i, value, true);
  header.set(createHash("sha256").update(name).digest(), 16);
  return header;
}
