/**
 * Memory for what sequences hold: blocks of a few sizes out of larger slabs, which are allocated when they are needed and
 * given back when they are empty. Knows numbers of bytes only.
 */
import { UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import { logInfo } from "../log.ts";

/** Bytes of a slab, unless a block is larger, or the limit so low that slabs of one kind would keep another's from it. */
const SLAB_BYTES = 1 << 24;
/**
 * The part of the limit that one slab of each kind has together, unless it has one block: what empty blocks can waste.
 */
const SLABS_SHARE = 1 / 16;
/** So few of a kind stay, however little is in them. */
const SLABS_KEPT = 2;
/** Kernels read from cache lines on. */
const BLOCK_ALIGNMENT = 64;

interface Slab {
  readonly kind: number;
  readonly bytes: Uint8Array;
  readonly address: bigint;
  readonly blocks: (Block | null)[];
  used: number;
}

/** Some bytes of a slab. They move when slabs are emptied, which happens between steps only. */
export class Block {
  readonly kind: number;
  slab: Slab;
  index: number;
  bytes: Uint8Array;
  /** Address of the first byte, as kernels see it. */
  address: bigint;

  constructor(slab: Slab, index: number) {
    this.kind = slab.kind;
    this.slab = slab;
    this.index = index;
    this.bytes = bytesAt(slab, index);
    this.address = slab.address + BigInt(this.bytes.byteOffset - slab.bytes.byteOffset);
    slab.blocks[index] = this;
    slab.used++;
  }

  /** To a free place of another slab. */
  moveTo(slab: Slab, index: number): void {
    const old = this.bytes;
    this.slab.blocks[this.index] = null;
    this.slab.used--;
    this.slab = slab;
    this.index = index;
    this.bytes = bytesAt(slab, index);
    this.bytes.set(old);
    this.address = slab.address + BigInt(this.bytes.byteOffset - slab.bytes.byteOffset);
    slab.blocks[index] = this;
    slab.used++;
  }
}

function bytesAt({ bytes, blocks }: Slab, index: number): Uint8Array {
  const blockBytes = bytes.length / blocks.length;
  return bytes.subarray(index * blockBytes, (index + 1) * blockBytes);
}

/** Blocks of several kinds, each kind of one size, within a limit of bytes that all slabs together keep. */
export class BlockPool {
  readonly #memory: KernelMemory;
  /** [kinds]: bytes of a block, blocks of a slab, slabs. */
  readonly #blockBytes: readonly number[];
  readonly #slabBlocks: readonly number[];
  readonly #slabs: Slab[][];
  #limit: number;
  #bytes = 0;
  #usedBytes = 0;
  #moves = 0;

  /** `sizes` are the bytes of a block of each kind. */
  constructor(memory: KernelMemory, limit: number, sizes: readonly number[]) {
    this.#memory = memory;
    this.#limit = limit;
    this.#blockBytes = sizes.map(blockSize);
    this.#slabBlocks = this.#blockBytes.map((bytes) => slabBlocks(bytes, (limit * SLABS_SHARE) / sizes.length));
    this.#slabs = sizes.map(() => []);
  }

  /** Bytes that slabs keep. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes of blocks that were taken. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Most bytes that slabs may keep; less than was asked for when the memory had no more. */
  get limit(): number {
    return this.#limit;
  }

  /** Times that blocks have moved: their addresses are others since. */
  get moves(): number {
    return this.#moves;
  }

  /** A block, whose bytes may hold anything; null when there is none within the limit. */
  take(kind: number): Block | null {
    const slab = this.#fullestWithRoom(kind) ?? this.#newSlab(kind);
    if (!slab) return null;
    this.#usedBytes += this.#blockBytes[kind]!;
    return new Block(slab, slab.blocks.indexOf(null));
  }

  give(block: Block): void {
    const { slab, index, kind } = block;
    slab.blocks[index] = null;
    slab.used--;
    this.#usedBytes -= this.#blockBytes[kind]!;
    if (slab.used > 0) return;
    // One empty slab is kept for the next block.
    const empty = this.#slabs[kind]!.filter(({ used }) => used === 0);
    if (empty.length > 1) this.#release(slab);
  }

  /**
   * Makes room within the limit for a slab of a kind, by moving blocks of other kinds together. False when they do not
   * leave enough; it must be called between steps only.
   */
  compact(kind: number): boolean {
    const needed = this.#slabBytes(kind);
    for (let other = 0; other < this.#slabs.length; other++) {
      if (other === kind) continue;
      while (this.#bytes + needed > this.#limit && this.#emptyOne(other)) {}
    }
    return this.#bytes + needed <= this.#limit;
  }

  /**
   * Gives back a slab of each kind of whose blocks more than half are free, by moving its blocks to others. It must be
   * called between steps only.
   */
  trim(): void {
    for (const [kind, slabs] of this.#slabs.entries()) {
      const used = slabs.reduce((sum, slab) => sum + slab.used, 0);
      if (slabs.length > SLABS_KEPT && used < (slabs.length * this.#slabBlocks[kind]!) / 2) this.#emptyOne(kind);
    }
  }

  /** Gives all slabs back, whatever is in them. */
  dispose(): void {
    for (const slab of this.#slabs.flat()) this.#release(slab);
    this.#usedBytes = 0;
  }

  #slabBytes(kind: number): number {
    return this.#slabBlocks[kind]! * this.#blockBytes[kind]!;
  }

  /** So that others become empty. */
  #fullestWithRoom(kind: number, except?: Slab): Slab | undefined {
    let best: Slab | undefined;
    for (const slab of this.#slabs[kind]!)
      if (slab !== except && slab.used < slab.blocks.length && slab.used >= (best?.used ?? 0)) best = slab;
    return best;
  }

  #newSlab(kind: number): Slab | null {
    const byteLength = this.#slabBytes(kind);
    if (this.#bytes + byteLength > this.#limit) return null;
    const bytes = this.#allocate(byteLength);
    if (!bytes) return null;
    const blocks = new Array<Block | null>(this.#slabBlocks[kind]!).fill(null);
    const slab: Slab = { kind, bytes, address: this.#memory.addressOf(bytes), blocks, used: 0 };
    this.#slabs[kind]!.push(slab);
    this.#bytes += byteLength;
    return slab;
  }

  /** Null, and a lower limit from now on, where the memory has no more. */
  #allocate(byteLength: number): Uint8Array | null {
    try {
      return this.#memory.allocate(byteLength);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof UnsupportedError)) throw error;
      logInfo(
        () => `keys and values: ${this.#bytes} bytes of ${this.#limit} are all that can be had: ${error.message}`,
      );
      this.#limit = this.#bytes;
      return null;
    }
  }

  /** Moves the blocks of the emptiest slab of a kind to its others and gives it back; false when they have no room. */
  #emptyOne(kind: number): boolean {
    const slabs = this.#slabs[kind]!;
    const room = slabs.reduce((sum, { blocks, used }) => sum + blocks.length - used, 0);
    if (slabs.length === 0 || room < this.#slabBlocks[kind]!) return false;
    const emptiest = slabs.reduce((least, slab) => (slab.used < least.used ? slab : least));
    for (const block of emptiest.blocks.filter((block) => block !== null)) {
      const target = this.#fullestWithRoom(kind, emptiest)!;
      block.moveTo(target, target.blocks.indexOf(null));
      this.#moves++;
    }
    this.#release(emptiest);
    return true;
  }

  #release(slab: Slab): void {
    const slabs = this.#slabs[slab.kind]!;
    slabs.splice(slabs.indexOf(slab), 1);
    this.#bytes -= slab.bytes.length;
    // What frees memory may be the collection of garbage, much later.
    this.#memory.discard(slab.bytes);
    this.#memory.free(slab.bytes);
  }
}

/** Bytes that a block takes of its slab. */
export function blockSize(bytes: number): number {
  return Math.ceil(bytes / BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT;
}

function slabBlocks(blockBytes: number, most: number): number {
  return Math.max(1, Math.floor(Math.min(SLAB_BYTES, most) / blockBytes));
}

/** Least limit with which `counts` blocks of each size can all be had, whatever was taken and given before. */
export function limitFor(sizes: readonly number[], counts: readonly number[]): number {
  const bytes = sizes.reduce((sum, size, kind) => sum + blockSize(size) * counts[kind]!, 0);
  return Math.ceil(bytes / (1 - SLABS_SHARE));
}
