/** Restores a sequence from a file, whose contents are checked throughout. */
import type { ByteSource } from "../byte-source.ts";
import { ContextLengthError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { crc32c } from "./crc32c.ts";
import {
  blocksInFile,
  CHECKSUM_BYTES,
  checkSum,
  decodeHeader,
  type FileContent,
  fileBytes,
  headerLength,
  PREFIX_BYTES,
  statesInFile,
} from "./file.ts";
import type { SequenceLayout } from "./layout.ts";
import type { LoadedPages } from "./load.ts";
import type { Page } from "./page.ts";
import type { PageStore } from "./page-store.ts";
import type { State } from "./state.ts";

/** What the file must agree with. */
export interface RestoreOptions {
  readonly layout: SequenceLayout;
  readonly program: string;
  readonly contextLength: number;
}

/** A restored sequence, in pages that nobody else knows. */
export interface RestoredSequence extends LoadedPages {
  readonly branch: string;
}

/** A file whose header and ids were read and checked. */
export interface SavedStart {
  readonly reader: Reader;
  readonly content: FileContent;
  readonly ids: readonly number[];
}

/** Reads and checks everything before the pages. */
export async function readStart(source: ByteSource, options: RestoreOptions): Promise<SavedStart> {
  const { layout, program, contextLength } = options;
  const { name, size } = source;
  const reader = new Reader(source);
  const header = await readHeader(reader);
  const content = decodeHeader(name, header, layout, program);
  const { tokens } = content;
  if (tokens > contextLength)
    throw new ContextLengthError(`${name}: expected at most ${contextLength} tokens but found ${tokens}`);
  const expected = fileBytes(layout, header.length, content);
  if (size !== expected) throw new InvalidFileError(name, `expected ${expected} bytes but found ${size}`);
  return { reader, content, ids: await readIds(reader, tokens) };
}

/** Reads the rest of a file into the pages and states of `room`, which are given back when that fails. */
export async function readPages(start: SavedStart, room: Room, layout: SequenceLayout): Promise<RestoredSequence> {
  const { reader, content, ids } = start;
  const { kinds, stateBytes } = layout.shape;
  try {
    for (const { page, kind } of blocksInFile(layout, content))
      await reader.fill(room.pages[page]!.blocks[kind]!.bytes.subarray(0, kinds[kind]!.byteLength));
    for (const { block } of room.states) await reader.fill(block.bytes.subarray(0, stateBytes));
    const { sum } = reader;
    const end = await reader.read(CHECKSUM_BYTES);
    checkSum(reader.source.name, "file", sum, new DataView(end.buffer, end.byteOffset).getUint32(0, true));
  } catch (error) {
    room.giveBack();
    throw error;
  }
  if (room.states.length > 1) room.pages[content.boundary / layout.pagePositions - 1]!.state = room.states[0]!;
  const { branch, firstPages } = content;
  return { branch, ids, pages: room.pages, firstPages, state: room.states.at(-1) ?? null };
}

/** Reads a file from start to end, and computes the checksum of what it reads. */
class Reader {
  readonly source: ByteSource;
  sum = 0;
  #offset = 0;

  constructor(source: ByteSource) {
    this.source = source;
  }

  async read(length: number): Promise<Uint8Array> {
    const bytes = await this.source.read(this.#offset, length);
    this.#passed(bytes);
    return bytes;
  }

  async fill(target: Uint8Array): Promise<void> {
    if (this.source.readInto) await this.source.readInto(this.#offset, target);
    else target.set(await this.source.read(this.#offset, target.length));
    this.#passed(target);
  }

  #passed(bytes: Uint8Array): void {
    this.sum = crc32c(bytes, this.sum);
    this.#offset += bytes.length;
  }
}

/** Everything before the ids. */
async function readHeader(reader: Reader): Promise<Uint8Array> {
  const { name, size } = reader.source;
  const least = (bytes: number) => {
    if (size < bytes) throw new InvalidFileError(name, `expected at least ${bytes} bytes but found ${size}`);
  };
  least(PREFIX_BYTES + CHECKSUM_BYTES);
  const prefix = await reader.read(PREFIX_BYTES);
  const length = headerLength(name, prefix);
  least(PREFIX_BYTES + length + CHECKSUM_BYTES);
  const header = new Uint8Array(PREFIX_BYTES + length);
  header.set(prefix);
  header.set(await reader.read(length), PREFIX_BYTES);
  return header;
}

async function readIds(reader: Reader, tokens: number): Promise<number[]> {
  const bytes = await reader.read(4 * tokens);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: tokens }, (_, i) => view.getUint32(4 * i, true));
}

/** Pages and states that nobody holds. */
export interface Room {
  readonly pages: readonly Page[];
  readonly states: readonly State[];
  giveBack(): void;
}

/** Allocates pages and states for all that is in a file. UnsupportedError when there is no room. */
export function takeRoom({ reader, content, ids }: SavedStart, store: PageStore, layout: SequenceLayout): Room {
  const { pagePositions } = layout;
  const kindsOf = new Map<number, Set<number>>();
  for (const { page, kind } of blocksInFile(layout, content))
    kindsOf.set(page, (kindsOf.get(page) ?? new Set()).add(kind));
  const pages: Page[] = [];
  const states: State[] = [];
  const giveBack = () => {
    for (const page of pages) store.giveBack(page);
    for (const state of states) store.releaseState(state);
  };
  const refuse = () => {
    giveBack();
    return new UnsupportedError(
      `${reader.source.name}: expected room for ${content.tokens} tokens but found ${store.pool.limit} bytes for all sequences, of which ` +
        `${store.pool.usedBytes} are in use; dispose of sequences or raise cacheBytes`,
    );
  };
  for (let start = 0; start < ids.length; start += pagePositions) {
    const kinds = kindsOf.get(pages.length);
    const page = store.newPage(ids.slice(start, start + pagePositions), (kind) => kinds?.has(kind) ?? false);
    if (!page) throw refuse();
    pages.push(page);
  }
  for (const _ of statesInFile(layout, content)) {
    const state = store.newState();
    if (!state) throw refuse();
    states.push(state);
  }
  return { pages, states, giveBack };
}
