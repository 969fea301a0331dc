/** A store of sequences over plain memory, and steps that write what can be told apart: a number for each chain of ids. */
import { expect } from "vitest";
import type { KernelMemory } from "../../src/kernels/contract.ts";
import { processMemory } from "../../src/kernels/memory.ts";
import {
  type KvCacheType,
  type LayerPages,
  partOffsets,
  runsOf,
  type SequenceUse,
} from "../../src/kernels/sequence-table.ts";
import type { SequenceOptions } from "../../src/sequences/layout.ts";
import type { Sequence } from "../../src/sequences/sequence.ts";
import { SequenceStore } from "../../src/sequences/store.ts";

/** Memory that knows what is allocated, with addresses that lead back to it. */
export class CountedMemory implements KernelMemory {
  readonly #process = processMemory();
  readonly #allocated = new Map<Uint8Array, bigint>();
  #nextAddress = 4096n;
  /** More than this is refused. */
  bytesMax = Number.POSITIVE_INFINITY;
  readonly holdsConstants = false;
  readonly abort = new Int32Array(1);
  readonly planCalls = this.#process.planCalls;

  bytes = 0;

  allocate(byteLength: number): Uint8Array {
    if (this.bytes + byteLength > this.bytesMax) throw new RangeError("Array buffer allocation failed");
    // Memory from WebAssembly or the system may have been used before: what is in it means nothing.
    const bytes = new Uint8Array(byteLength).fill(0xa5);
    this.#allocated.set(bytes, this.#nextAddress);
    this.bytes += byteLength;
    this.#nextAddress += BigInt(byteLength + 4096);
    return bytes;
  }

  free(bytes: Uint8Array): void {
    if (!this.#allocated.delete(bytes)) throw new Error("freed twice, or not from here");
    this.bytes -= bytes.length;
  }

  addressOf(bytes: Uint8Array): bigint {
    return this.#allocated.get(bytes)!;
  }

  /** Bytes that were given back to the system. */
  discarded = 0;

  discard(bytes: Uint8Array): void {
    this.discarded += bytes.length;
    bytes.fill(0x5a);
  }

  /** The bytes at an address, to be compared with those that a table gives. */
  at(address: bigint, byteLength: number): Uint8Array {
    for (const [bytes, start] of this.#allocated)
      if (address >= start && address + BigInt(byteLength) <= start + BigInt(bytes.length))
        return bytes.subarray(Number(address - start), Number(address - start) + byteLength);
    throw new Error(`nothing is allocated at ${address}`);
  }

  async dispose(): Promise<void> {}
}

interface Chain {
  readonly number: number;
  readonly next: Map<number, Chain>;
  readonly branch: string;
  readonly ids: readonly number[];
}

const branches = new Map<string, Chain>();
/** By number, of which there is none 0. */
const chains: (Chain | undefined)[] = [undefined];

/** [ids.length + 1]: a number for each sequence of ids in a branch, of those that it begins with, exactly. */
export function chainNumbers(branch: string, ids: readonly number[]): number[] {
  const begin = (ids: readonly number[]): Chain => {
    const chain = { number: chains.length, next: new Map(), branch, ids };
    chains.push(chain);
    return chain;
  };
  let chain = branches.get(branch) ?? begin([]);
  branches.set(branch, chain);
  const numbers = [chain.number];
  for (const id of ids) {
    const next = chain.next.get(id) ?? begin([...chain.ids, id]);
    chain.next.set(id, next);
    numbers.push(next.number);
    chain = next;
  }
  return numbers;
}

/** A store whose keys hold, at each position, the number of the chain up to it, and whose values hold the layer, too. */
export class CellStore {
  readonly memory = new CountedMemory();
  readonly store: SequenceStore;
  readonly uses: readonly SequenceUse[];

  /** Cells take 4 bytes: heads of pages of int4, of which rows are in f16, have two columns. */
  constructor(uses: readonly SequenceUse[], options: Omit<SequenceOptions, "type"> & { readonly type?: KvCacheType }) {
    this.uses = uses;
    this.store = new SequenceStore(this.memory, uses, { type: "f32", ...options });
  }

  /** Computes the ids that follow in each sequence, as kernels would, and checks what these would read. */
  async step(
    runs: readonly { sequence: Sequence; ids: readonly number[] }[],
    { fails = false, during = () => {} }: { fails?: boolean; during?: () => void } = {},
  ): Promise<void> {
    const steps = runs.map(({ sequence, ids }) => ({ sequence, tokens: ids.length }));
    await this.store.step(steps, async () => {
      const { table } = this.store;
      const total = steps.reduce((sum, { tokens }) => sum + tokens, 0);
      const found = [...runsOf(table, total)];
      expect(found.length).toBe(runs.length);
      for (const [i, { position, slot }] of found.entries()) this.#compute(slot, position, runs[i]!);
      await Promise.resolve();
      during();
      if (fails) throw new Error("aborted");
    });
  }

  /**
   * Computes the rows of a step as a program does, which knows nothing of sequences but the table: what a run continues is
   * what the state, or the last cell before it, says. Gives the number of each row's chain.
   */
  computeRows(branch: string, tokens: readonly number[]): number[] {
    const numbers: number[] = new Array(tokens.length).fill(0);
    for (const { row, rows, position, slot } of runsOf(this.store.table, tokens.length)) {
      const before = position === 0 ? { branch, ids: [] } : chains[this.#numberBefore(slot, position)];
      if (before?.branch !== branch || before.ids.length !== position)
        expect.fail(`position ${position}: what is before it was not computed for it`);
      const ids = tokens.slice(row, row + rows);
      const sequence = { branch, position, ids: before.ids };
      this.#compute(slot, position, { sequence, ids });
      for (const [i, number] of chainNumbers(branch, [...before.ids, ...ids])
        .slice(position + 1)
        .entries())
        numbers[row + i] = number;
    }
    return numbers;
  }

  /**
   * Computes rows that are drafted, each behind the token whose number is `before`, and writes where they stand what means
   * nothing, as a layer for drafts does. Gives the numbers of their chains.
   */
  draftRows(tokens: readonly number[], before: readonly number[]): number[] {
    for (const { rows, position, slot } of runsOf(this.store.table, tokens.length)) {
      expect(rows).toBe(1);
      for (const use of this.uses)
        if (use.kind === "cache") this.#writeCell(slot, use.layer, position, 0xdeadbeef - use.layer);
    }
    return tokens.map((token, i) => {
      const { branch, ids } = chains[before[i]!]!;
      return chainNumbers(branch, [...ids, token]).at(-1)!;
    });
  }

  #numberBefore(slot: number, position: number): number {
    const { table } = this.store;
    const state = this.uses.find((use) => use.kind === "state");
    if (state) return wordAt(table.state(slot).now, table.statePart(state.index)!.offset) - state.index;
    const seen = this.uses.find((use) => use.kind === "cache" && use.window !== 1) as SequenceUse & { kind: "cache" };
    const { cache, offset } = partFor(table.layerPages(seen.layer)!, position - 1, position);
    const page = this.#page(slot, cache, Math.floor((position - 1) / cache.pagePositions));
    return wordAt(page, offset + partOffsets(cache).keys + 4 * ((position - 1) % cache.pagePositions));
  }

  #compute(
    slot: number,
    position: number,
    { sequence, ids }: { sequence: Pick<Sequence, "branch" | "position" | "ids">; ids: readonly number[] },
  ): void {
    const start = sequence.position;
    expect(position).toBe(start);
    const numbers = chainNumbers(sequence.branch, [...sequence.ids, ...ids]);
    for (const i of ids.keys())
      for (const use of this.uses) {
        if (use.kind !== "cache") continue;
        this.#writeCell(slot, use.layer, position + i, numbers[position + i + 1]!);
        const pageAt = (index: number, { cache }: LayerPages) => this.#page(slot, cache, index);
        this.#checkCells(pageAt, use, { row: position + i, numbers: numbers.slice(0, position + i + 2) });
      }
    const { table } = this.store;
    for (const use of this.uses) {
      if (use.kind !== "state") continue;
      const { offset } = table.statePart(use.index)!;
      const { now, next } = table.state(slot);
      expect(this.memory.at(table.states[slot]!, now.length).byteOffset).toBe(now.byteOffset);
      expect(wordAt(now, offset)).toBe(start === 0 ? 0 : numbers[start]! + use.index);
      setWord(this.memory.at(table.nextStates[slot]!, next.length), offset, numbers.at(-1)! + use.index);
    }
  }

  /** By `page`, as plain loops find it, which must be where its address leads. */
  #page(slot: number, cache: LayerPages["cache"], index: number): Uint8Array {
    const bytes = cache.page(slot, index);
    const { buffer, byteOffset } = this.memory.at(cache.pages[slot * cache.pagesMax + index]!, bytes.length);
    if (buffer !== bytes.buffer || byteOffset !== bytes.byteOffset) expect.fail(`page ${index}: found another address`);
    return bytes;
  }

  /** By address, as native kernels do. */
  #writeCell(slot: number, layer: number, position: number, value: number): void {
    const full = this.store.table.layerPages(layer)!;
    const index = Math.floor(position / full.cache.pagePositions);
    const bytesOf = ({ cache, offset }: LayerPages) =>
      this.memory.at(cache.pages[slot * cache.pagesMax + index]! + BigInt(offset), partOffsets(cache).layerBytes);
    const part = partFor(full, position, position);
    const { keys, values } = partOffsets(part.cache);
    const page = bytesOf(part);
    const at = 4 * (position % full.cache.pagePositions);
    setWord(page, keys + at, value);
    setWord(page, values + at, value + layer);
    if (part === full || (position + 1) % full.cache.pagePositions !== 0) return;
    // The page is full.
    const to = partOffsets(full.cache);
    bytesOf(full).set(page.subarray(keys, keys + at + 4), to.keys);
    bytesOf(full).set(page.subarray(values, values + at + 4), to.values);
  }

  /** What the next row of a sequence reads holds what was written for exactly its ids. */
  verify(sequence: Sequence): void {
    const numbers = chainNumbers(sequence.branch, sequence.ids);
    for (const use of this.uses) {
      if (use.kind === "state") {
        const now = sequence.states.now?.block.bytes;
        const { offset } = this.store.table.statePart(use.index)!;
        if (sequence.position > 0) expect(wordAt(now!, offset)).toBe(numbers.at(-1)! + use.index);
        continue;
      }
      const { layout } = this.store;
      const { kinds, layers } = layout;
      const { kind } = layers.get(use.layer)!;
      expect(kinds[kind]!.window === 0 || kinds[kind]!.window === use.window).toBe(true);
      const pageAt = (index: number, { cache }: LayerPages) =>
        sequence.pages[index]!.blocks[cache.type === layout.type ? kind : layout.kinds.length / 2 + kind]!.bytes;
      this.#checkCells(pageAt, use, { row: sequence.position, numbers });
    }
  }

  /** What a row reads, of the cells that were written. */
  #checkCells(
    pageAt: (index: number, part: LayerPages) => Uint8Array,
    use: SequenceUse & { kind: "cache" },
    { row, numbers }: { row: number; numbers: readonly number[] },
  ): void {
    const layer = this.store.table.layerPages(use.layer)!;
    const first = use.window > 0 ? Math.max(0, row - use.window + 1) : 0;
    for (let position = first; position < numbers.length - 1; position++) {
      const part = partFor(layer, position, row);
      const { cache, offset } = part;
      const { keys, values } = partOffsets(cache);
      const page = pageAt(Math.floor(position / cache.pagePositions), part);
      const at = offset + 4 * (position % cache.pagePositions);
      const expected = numbers[position + 1]!;
      if (wordAt(page, keys + at) !== expected || wordAt(page, values + at) !== expected + use.layer)
        expect.fail(`layer ${use.layer}, position ${position}: expected ${expected}, found ${wordAt(page, keys + at)}`);
    }
  }

  /** All ids in steps of at most `rows`; false when there was no room. */
  async extend(sequence: Sequence, ids: readonly number[], rows = ids.length): Promise<boolean> {
    for (let i = 0; i < ids.length; i += rows) {
      const part = ids.slice(i, i + rows);
      if (!sequence.reserve(part.length)) return false;
      await this.step([{ sequence, ids: part }]);
      sequence.commit(part);
    }
    return true;
  }
}

/** Where a row finds a position: of its own page and the first one, in f16 where others are of int4. */
function partFor(layer: LayerPages, position: number, row: number): LayerPages {
  const index = (at: number) => Math.floor(at / layer.cache.pagePositions);
  return index(position) === 0 || index(position) === index(row) ? (layer.residual ?? layer) : layer;
}

function wordAt(bytes: Uint8Array, offset: number): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(offset, true);
}

function setWord(bytes: Uint8Array, offset: number, value: number): void {
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length).setUint32(offset, value, true);
}
