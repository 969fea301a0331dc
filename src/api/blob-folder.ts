/**
 * Blobs by name in a folder, under a byte limit that several processes share. A blob is a file:
 *
 *     0 u32 magic "LBKV"    4 u32 version    8 u32 bytes of the content    12 u32 CRC-32 of it
 *     16 [32] SHA-256 of the name
 *     48 content
 *
 * Files are written under temporary names and renamed, so that a process may be killed at any time.
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
/** Share of the limit (or quota) that is freed beyond what is needed, so that the folder is not full again at once. */
const SPARE_SHARE = 1 / 8;
/** A look at the folder allows this process 1 / LOOKS of the free bytes, since other processes write meanwhile. */
const LOOKS = 4;
/** Age from which an unfinished file is a leftover even where its process is not known to have ended. */
const LEFTOVER_MS = 3_600_000;
/** Least time between two updates of a blob's modification time. */
const TOUCH_MS = 60_000;
/** How long nothing is written after a failed write (such as on a full disk), or to a group whose quota is full. */
const PAUSE_MS = 60_000;
const NOTED_MAX = 100_000;

interface Waiting {
  readonly name: string;
  readonly bytes: () => Uint8Array | null;
}

/** Hexadecimal digits of the hashes of an owner and of a kind, which begin a blob's name. */
const DIGITS = 8;
/**
 * Blobs used within this time are not removed for others of their group: the first pages of a prompt must not go for its
 * last.
 */
const YOUNG_MS = 600_000;

/**
 * The name of a blob of an owner and a kind. When the folder is full, the owner with most bytes loses the longest unused
 * first.
 */
export function ownedName(owner: string, kind: string, name: string): string {
  return `${groupOf(owner, kind)}.${name}`;
}

function groupOf(...parts: [owner: string, kind: string]): string {
  return parts.map((part) => createHash("sha256").update(part).digest("hex").slice(0, DIGITS)).join("-");
}

/** A file of the folder. */
interface Found {
  readonly path: string;
  /** Hash of owner and kind, shared by all files of both; its first `DIGITS` are the owner's. */
  readonly group: string;
  readonly bytes: number;
  readonly usedAt: number;
  /** Whether it is an unfinished file of a process that has ended. */
  readonly isLeftover: boolean;
}

/** Opens a folder of blobs of at most `limit` bytes. InvalidFileError where nothing can be written to it. */
export async function openBlobFolder(folder: string, limit: number): Promise<BlobFolder> {
  checkWhole("bytes", limit, 1);
  await checkWritable(join(folder, "new"));
  return new BlobFolder(folder, limit);
}

/** A folder of blobs as one process sees it. */
export class BlobFolder {
  readonly #folder: string;
  readonly #limit: number;
  readonly #waiting: Waiting[] = [];
  /** When this process last noted a blob as used, by name. */
  readonly #usedAt = new Map<string, number>();
  #writing: Promise<void> | null = null;
  /** Bytes that may be written before the folder must be listed again. */
  #allowance = 0;
  #pausedUntil = 0;
  /** Most bytes of the blobs of a group, by group. */
  readonly #quotas = new Map<string, number>();
  /** Until when nothing is written to a group that was full, by group. */
  readonly #fullUntil = new Map<string, number>();
  /** Bytes of the blobs of each group: those of the last listing, and what was written since. */
  #bytesOf = new Map<string, number>();

  /** Internal: `openBlobFolder` makes them. */
  constructor(folder: string, limit: number) {
    this.#folder = folder;
    this.#limit = limit;
  }

  /** Whether a blob of this name exists, damaged or not. */
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

  /** Queues a blob to be written after those before it. `bytes` is called then, and may give null to write nothing. */
  write(name: string, bytes: () => Uint8Array | null): void {
    this.#waiting.push({ name, bytes });
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null;
    });
  }

  /** Resolves when all blobs queued so far are written. */
  async flush(): Promise<void> {
    while (this.#writing) await this.#writing;
  }

  /**
   * Sets a quota in bytes for the blobs of an owner and a kind. Other processes that write at the same time may exceed it.
   */
  limit(owner: string, kind: string, bytes: number): void {
    this.#quotas.set(groupOf(owner, kind), bytes);
  }

  /** Marks blobs as used now. Those later in the list count as older, and are removed first. */
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
    // A blob that this process neither read nor wrote may be damaged, so it is written again.
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

  /** Removes files until a blob of `bytes` fits into a group; false where it does not. */
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

  /** Lists the folder and removes what is too much for a blob of `bytes` in a group, and `SPARE_SHARE` more. */
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

  /** All files: leftovers first, then by time of last use, the longest unused first. */
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

/** Files in the order of removal: leftovers, then again and again the longest unused file of the owner with most bytes. */
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

/** The group in a blob's or file's name; "" for a name without one. */
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
