/**
 * Allocates blocks of a few fixed sizes out of larger slabs, which are allocated when needed and freed when empty. It knows
 * nothing of what blocks hold.
 */
import { UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import { logInfo } from "../log.ts";

/**
 * Bytes of a slab, unless a block is larger, or the limit is so low that slabs of one kind would leave no room for other
 * kinds.
 */
const SLAB_BYTES = 1 << 24;
/**
 * Share of the limit that one slab of each kind takes together, unless slabs have one block: bounds what empty blocks
 * waste.
 */
const SLABS_SHARE = 1 / 16;
/** Slabs of a kind that are never trimmed. */
const SLABS_KEPT = 2;
/** Bytes of a cache line, at which blocks begin. */
const BLOCK_ALIGNMENT = 64;

interface Slab {
  readonly kind: number;
  readonly bytes: Uint8Array;
  readonly address: bigint;
  readonly blocks: (Block | null)[];
  used: number;
}

/** A range of bytes in a slab. Blocks move when slabs are emptied, between steps only. */
export class Block {
  readonly kind: number;
  slab: Slab;
  index: number;
  bytes: Uint8Array;
  /** Address of the first byte, for kernels. */
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

  /** Moves its bytes to a free place of another slab. */
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

/** Blocks of several kinds, each of one size, under a limit of bytes for all slabs together. */
export class BlockPool {
  readonly #memory: KernelMemory;
  /** By kind: bytes of a block; then blocks of a slab, and slabs. */
  readonly #blockBytes: readonly number[];
  readonly #slabBlocks: readonly number[];
  readonly #slabs: Slab[][];
  #limit: number;
  #bytes = 0;
  #usedBytes = 0;
  #moves = 0;

  /** `sizes`: bytes of a block, by kind. */
  constructor(memory: KernelMemory, limit: number, sizes: readonly number[]) {
    this.#memory = memory;
    this.#limit = limit;
    this.#blockBytes = sizes.map(blockSize);
    this.#slabBlocks = this.#blockBytes.map((bytes) => slabBlocks(bytes, (limit * SLABS_SHARE) / sizes.length));
    this.#slabs = sizes.map(() => []);
  }

  /** Bytes of all slabs. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes of the blocks in use. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Most bytes of slabs; lowered when the memory could not give more. */
  get limit(): number {
    return this.#limit;
  }

  /** Number of moves of blocks so far, each of which changed an address. */
  get moves(): number {
    return this.#moves;
  }

  /** Takes a block with undefined contents; null when there is none within the limit. */
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
   * Makes room for a slab of a kind by moving blocks of other kinds together. False when that does not free enough. Must be
   * called between steps only.
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
   * Frees a slab of each kind of which more than half of the blocks are free, by moving its blocks to other slabs. Must be
   * called between steps only.
   */
  trim(): void {
    for (const [kind, slabs] of this.#slabs.entries()) {
      const used = slabs.reduce((sum, slab) => sum + slab.used, 0);
      if (slabs.length > SLABS_KEPT && used < (slabs.length * this.#slabBlocks[kind]!) / 2) this.#emptyOne(kind);
    }
  }

  /** Frees all slabs, with blocks in use. */
  dispose(): void {
    for (const slab of this.#slabs.flat()) this.#release(slab);
    this.#usedBytes = 0;
  }

  #slabBytes(kind: number): number {
    return this.#slabBlocks[kind]! * this.#blockBytes[kind]!;
  }

  /** The fullest slab with room, so that others become empty. */
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

  /** Allocates a slab; null, with the limit lowered, where the memory has no more. */
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

  /** Moves the blocks of the emptiest slab of a kind to the others and frees it; false when they have no room. */
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
    // The memory itself may be freed much later, by garbage collection, so its pages are given back now.
    this.#memory.discard(slab.bytes);
    this.#memory.free(slab.bytes);
  }
}

/** Bytes of a block with padding to cache lines. */
export function blockSize(bytes: number): number {
  return Math.ceil(bytes / BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT;
}

function slabBlocks(blockBytes: number, most: number): number {
  return Math.max(1, Math.floor(Math.min(SLAB_BYTES, most) / blockBytes));
}

/**
 * The least limit with which `counts` blocks of each kind fit at the same time, in whatever order blocks were taken and
 * freed.
 */
export function limitFor(sizes: readonly number[], counts: readonly number[]): number {
  const bytes = sizes.reduce((sum, size, kind) => sum + blockSize(size) * counts[kind]!, 0);
  return Math.ceil(bytes / (1 - SLABS_SHARE));
}
