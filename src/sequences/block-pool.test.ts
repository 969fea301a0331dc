import fc from "fast-check";
import { expect, test } from "vitest";
import { CountedMemory } from "../../test/support/sequence-cells.ts";
import { type Block, BlockPool, limitFor } from "./block-pool.ts";

const SIZES = [64, 100, 640];

test("blocks keep their bytes, each its own, whatever is taken, given and moved", () => {
  const operation = fc.record({
    kind: fc.nat(2),
    what: fc.constantFrom("take", "take", "take", "give", "give", "compact", "trim"),
    pick: fc.nat(1000),
  });
  const property = fc.property(fc.array(operation, { minLength: 50, maxLength: 200, size: "max" }), (operations) => {
    const memory = new CountedMemory();
    const limit = 24_000;
    const pool = new BlockPool(memory, limit, SIZES);
    const held: { block: Block; value: number }[] = [];
    let taken = 0;
    for (const { kind, what, pick } of operations) {
      if (what === "compact") pool.compact(kind);
      else if (what === "trim") pool.trim();
      else if (what === "give") for (const { block } of held.splice(pick % (held.length + 1), 5)) pool.give(block);
      else
        for (let i = 0; i < 5; i++) {
          const block = pool.take(kind);
          if (!block) break;
          const value = taken++ % 251;
          block.bytes.fill(value);
          held.push({ block, value });
        }
      for (const { block, value } of held) {
        if (block.bytes[0] !== value || block.bytes.at(-1) !== value) expect.fail("a block was overwritten");
        if (memory.at(block.address, 1).byteOffset !== block.bytes.byteOffset) expect.fail("another address");
      }
      const used = held.reduce((sum, { block }) => sum + block.bytes.length, 0);
      if (pool.usedBytes !== used || memory.bytes !== pool.bytes || pool.bytes > limit)
        expect([pool.usedBytes, memory.bytes]).toEqual([used, pool.bytes]);
    }
    for (const { block, value } of held) expect(new Set(block.bytes)).toEqual(new Set([value]));
    pool.dispose();
    expect(memory.bytes).toBe(0);
  });
  fc.assert(property, { numRuns: 40 });
});

test("with the limit for them, blocks can be had whatever others were taken and given before", () => {
  const counts = [20, 70, 9];
  for (const first of [0, 1, 2]) {
    const pool = new BlockPool(new CountedMemory(), limitFor(SIZES, counts), SIZES);
    const blocks: Block[] = [];
    for (let block = pool.take(first); block; block = pool.take(first)) blocks.push(block);
    // Every seventh stays, so that all slabs have some.
    const kept = blocks.filter((_, i) => i % 7 === 0).slice(0, counts[first]!);
    for (const block of blocks) if (!kept.includes(block)) pool.give(block);
    const more = counts.map((count, kind) => (kind === first ? count - kept.length : count));
    for (const [kind, count] of more.entries())
      for (let i = 0; i < count; i++) {
        const block = pool.take(kind) ?? (pool.compact(kind) ? pool.take(kind) : null);
        expect(block, `block ${i} of kind ${kind}`).not.toBeNull();
      }
  }
});

test("slabs of which more than half is free are given back, one at a time", () => {
  const memory = new CountedMemory();
  const pool = new BlockPool(memory, 1 << 20, [1024]);
  const blocks = Array.from({ length: 640 }, () => pool.take(0)!);
  for (const [i, block] of blocks.entries()) if (i % 8 > 0) pool.give(block);
  expect(memory.bytes).toBe(640 * 1024);
  for (let i = 0; i < 20; i++) pool.trim();
  expect(memory.bytes).toBe(2 * 64 * 1024);
  expect(memory.discarded).toBe((640 - 2 * 64) * 1024);
});
