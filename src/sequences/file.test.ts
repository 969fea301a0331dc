import { describe, expect, test } from "vitest";
import { CellStore } from "../../test/support/sequence-cells.ts";
import { type ByteSource, memorySource } from "../byte-source.ts";
import { ContextLengthError, InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import type { KvCacheType, SequenceUse } from "../kernels/sequence-table.ts";
import { crc32c } from "./crc32c.ts";
import { SequenceStore } from "./store.ts";

const cache = (layer: number, window = 0, kvHeads = 1): SequenceUse => ({
  kind: "cache",
  layer,
  kvHeads,
  headDim: 1,
  window,
});
const state = (index: number): SequenceUse => ({ kind: "state", index, byteLength: 8 });
const options = { contextLength: 64, sequences: 2, cacheBytes: 1 << 20, pagePositions: 4, stepTokens: 8 };
const uses = [cache(0), cache(1, 6), state(0)];
const numbers = (length: number, first = 0) => Array.from({ length }, (_, i) => first + i);
const joined = (parts: Iterable<Uint8Array>) => new Uint8Array(Buffer.concat([...parts]));

/** A store with a sequence of some ids, and its file. */
async function saved(count: number, given: readonly SequenceUse[] = uses) {
  const cells = new CellStore(given, options);
  const sequence = cells.store.open([], { branch: "b" });
  for (let i = 0; i < count; i += 4) await cells.extend(sequence, numbers(Math.min(4, count - i), i));
  return { cells, sequence, bytes: joined(cells.store.save(sequence, "program 1")) };
}

const restore = (cells: CellStore, bytes: Uint8Array, program = "program 1") =>
  cells.store.restore(memorySource("saved.kv", bytes), program);

test("CRC-32C is that of RFC 3720, for any start and length", () => {
  // Its appendix B.4, and the check value of the catalogue of CRCs.
  expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
  expect(crc32c(new Uint8Array(32).fill(255))).toBe(0x62a8ab43);
  expect(crc32c(Uint8Array.from(numbers(32)))).toBe(0x46dd794e);
  const bytes = new TextEncoder().encode("..123456789");
  expect(crc32c(bytes.subarray(2))).toBe(0xe3069283);
  expect(crc32c(bytes.subarray(5), crc32c(bytes.subarray(2, 5)))).toBe(0xe3069283);
});

describe("a saved sequence", () => {
  test.each([0, 1, 4, 7, 8, 23])("of %i tokens goes on in another store, and others find it there", async (count) => {
    const { sequence, bytes } = await saved(count);
    const cells = new CellStore(uses, options);
    const restored = await restore(cells, bytes);
    expect(restored.ids).toEqual(sequence.ids);
    expect(restored.branch).toBe("b");
    cells.verify(restored);
    expect(await cells.extend(restored, [50, 51, 52])).toBe(true);
    restored.dispose();
    const pages = Math.floor(count / 4) * 4;
    const found = cells.store.open([...numbers(count), 60, 61], { branch: "b" });
    expect(found.position).toBe(pages);
    expect(await cells.extend(found, [...numbers(count - pages, pages), 60, 61], 4)).toBe(true);
  });

  test.each([3, 4, 7, 23])(
    "of %i tokens is found whole, its last page too, where no layer is recurrent",
    async (count) => {
      // What a window has left behind by the end is not in the file, so that earlier places cannot be gone on from.
      const caches = count < 8 ? [cache(0), cache(1, 6)] : [cache(0)];
      const { bytes } = await saved(count, caches);
      const cells = new CellStore(caches, options);
      for (let time = 0; time < 2; time++) {
        (await restore(cells, bytes)).dispose();
        const found = cells.store.open([...numbers(count), 60 + time, 61], { branch: "b" });
        expect(found.position).toBe(count);
        expect(await cells.extend(found, [60 + time, 61])).toBe(true);
        cells.verify(found);
        // What was restored did not change.
        const again = cells.store.open([...numbers(count), 70], { branch: "b" });
        expect(again.position).toBe(count);
        cells.verify(again);
        found.dispose();
        again.dispose();
      }
      const page = count - (count % 4);
      const other = cells.store.open([...numbers(page), 80, 81, 82, 83, 84], { branch: "b" });
      expect(other.position).toBe(page);
      expect(await cells.extend(other, [80, 81, 82, 83, 84])).toBe(true);
      cells.verify(other);
    },
  );

  test("is the same whatever else is in the store, and can be restored beside itself", async () => {
    const { cells, sequence, bytes } = await saved(23);
    const again = await restore(cells, bytes);
    expect(cells.store.statistics.sharedPages).toBe(5);
    expect(joined(cells.store.save(again, "program 1"))).toEqual(bytes);
    sequence.dispose();
    expect(await cells.extend(again, numbers(8, 23), 4)).toBe(true);
  });

  test("is that of the moment when it began to be saved", async () => {
    const { cells, sequence, bytes } = await saved(10);
    const parts: Uint8Array[] = [];
    for (const part of cells.store.save(sequence, "program 1")) {
      parts.push(part);
      if (parts.length === 1) await cells.extend(sequence, [70, 71, 72]);
      if (parts.length === 2) sequence.dispose();
    }
    expect(joined(parts)).toEqual(bytes);
    expect(cells.store.statistics.sequences).toBe(0);
  });

  test("holds nothing of what was in its memory before", async () => {
    const { bytes } = await saved(9, [cache(0)]);
    // After the header and the ids: of the last page, keys and values of 4 positions in 64 bytes each, of which one is held.
    const last = bytes.subarray(-4 - 128, -4);
    expect([...last].map((byte, i) => (byte !== 0 ? i : -1)).filter((i) => i >= 0)).toEqual([0, 64]);
  });

  test("is read into any store of the program, by way of `read` alone, too", async () => {
    const { bytes } = await saved(13);
    const cells = new CellStore(uses, { ...options, contextLength: 13, sequences: 1, cacheBytes: 1 << 14 });
    const { readInto: _, ...source } = memorySource("saved.kv", bytes);
    const restored = await cells.store.restore(source, "program 1");
    cells.verify(restored);
  });

  test("of version 1 is read by later versions, too", async () => {
    const golden = Buffer.from(GOLDEN, "base64");
    const cells = new CellStore([cache(0)], options);
    const restored = await cells.store.restore(memorySource("golden", golden), "program 1");
    expect(restored.ids).toEqual([7, 8, 9, 10, 11]);
    const words = restored.pages.map(({ blocks }) => [...new Uint32Array(blocks[0]!.bytes.slice().buffer)]);
    const part = (values: number[]) => [...values, ...new Array(12).fill(0)];
    expect(words[0]).toEqual([...part([1, 2, 3, 4]), ...part([101, 102, 103, 104])]);
    expect(words[1]).toEqual([...part([5, 0, 0, 0]), ...part([105, 0, 0, 0])]);
    expect(joined(cells.store.save(restored, "program 1"))).toEqual(new Uint8Array(golden));
  });
});

describe("files that are refused", () => {
  test("any byte changed, any end cut off, anything added", async () => {
    const { bytes } = await saved(6);
    const cells = new CellStore(uses, options);
    const used = cells.store.statistics.usedBytes;
    for (let i = 0; i < bytes.length; i++) {
      for (const bit of [1, 128]) {
        const flipped = bytes.slice();
        flipped[i]! ^= bit;
        await expect(restore(cells, flipped), `byte ${i}`).rejects.toThrow(InvalidFileError);
      }
      await expect(restore(cells, bytes.slice(0, i)), `${i} bytes`).rejects.toThrow(InvalidFileError);
    }
    const longer = new Uint8Array([...bytes, 0]);
    await expect(restore(cells, longer)).rejects.toThrow(`expected ${bytes.length} bytes but found ${longer.length}`);
    expect(cells.store.statistics).toMatchObject({ usedBytes: used, sequences: 0, pages: 0, idlePages: 0 });
    await restore(cells, bytes);
  });

  test("another program, type, version or size of pages, with both named", async () => {
    const { bytes } = await saved(6);
    const cells = new CellStore(uses, options);
    await expect(restore(cells, bytes, "program 2")).rejects.toThrow(
      'saved.kv: program: expected "program 2" but found "program 1"',
    );
    const of = (type: KvCacheType, given = uses, changes = {}) =>
      new SequenceStore(cells.memory, given, { ...options, type, ...changes }).restore(
        memorySource("saved.kv", bytes),
        "program 1",
      );
    await expect(of("int8")).rejects.toThrow('type: expected "int8" but found "f32"');
    await expect(of("f32", uses, { pagePositions: 8 })).rejects.toThrow("pagePositions: expected 8 but found 4");
    await expect(of("f32", [cache(0), cache(1, 6)])).rejects.toThrow("stateBytes: expected 0 but found 64");
    await expect(of("f32", [cache(0), cache(1, 7), state(0)])).rejects.toThrow(
      /kinds: expected .*"window":7.* but found/,
    );
    const later = bytes.slice();
    later[4] = 2;
    await expect(restore(cells, later)).rejects.toThrow("expected version 1 of saved sequences but found 2");
    await expect(restore(cells, new TextEncoder().encode("{}".repeat(20)))).rejects.toThrow('which begins with "LBSQ"');
  });

  test.each([
    [{ tokens: 2 ** 40 }, ContextLengthError, "expected at most 64 tokens but found 1099511627776"],
    [{ tokens: 7 }, InvalidFileError, "bytes but found"],
    [{ tokens: -1 }, InvalidFileError, "expected a branch, tokens and a boundary"],
    [{ tokens: "6" }, InvalidFileError, "expected a branch, tokens and a boundary"],
    [{ branch: 1 }, InvalidFileError, "expected a branch, tokens and a boundary"],
    [{ firstPages: [0] }, InvalidFileError, "firstPages: expected at most [0,0] but found [0]"],
    [{ firstPages: [0, 1] }, InvalidFileError, "firstPages: expected at most [0,0] but found [0,1]"],
    [{ firstPages: [0, -1] }, InvalidFileError, "firstPages: expected at most [0,0] but found [0,-1]"],
    [{ boundary: 3 }, InvalidFileError, "boundary: expected the end of a page of 6 tokens but found 3"],
    [{ boundary: 8 }, InvalidFileError, "boundary: expected the end of a page of 6 tokens but found 8"],
    [{ boundary: 0 }, InvalidFileError, "bytes but found"],
    [{ kinds: null }, InvalidFileError, "kinds: expected"],
  ])("a header made up with %j and right checksums", async (change, type, message) => {
    const { bytes } = await saved(6);
    const forged = withHeader(bytes, (header) => ({ ...header, ...change }));
    const cells = new CellStore(uses, options);
    await expect(restore(cells, forged)).rejects.toThrow(type);
    await expect(restore(cells, forged)).rejects.toThrow(message);
  });

  test("headers that are no object", async () => {
    const { bytes } = await saved(6);
    for (const text of ["", "[", "null", "3", "[".repeat(5000)])
      await expect(restore(new CellStore(uses, options), withText(bytes, text))).rejects.toThrow(InvalidFileError);
  });

  test("more tokens than there is room for", async () => {
    const { bytes } = await saved(60);
    const small = new CellStore(uses, { ...options, cacheBytes: 2000 });
    const used = small.store.statistics.usedBytes;
    await expect(restore(small, bytes)).rejects.toThrow(UnsupportedError);
    await expect(restore(small, bytes)).rejects.toThrow("saved.kv: expected room for 60 tokens but found 2000 bytes");
    expect(small.store.statistics.usedBytes).toBe(used);
    const short = new CellStore(uses, { ...options, contextLength: 59 });
    await expect(restore(short, bytes)).rejects.toThrow("saved.kv: expected at most 59 tokens but found 60");
  });

  test("a sequence of nobody", async () => {
    const { cells, sequence } = await saved(6);
    sequence.dispose();
    expect(() => [...cells.store.save(sequence, "program 1")]).toThrow(InvalidArgumentError);
  });
});

test("a store disposed of while a file is read gives its memory back afterwards", async () => {
  const { bytes } = await saved(20);
  const cells = new CellStore(uses, options);
  const source: ByteSource = memorySource("saved.kv", bytes);
  const slow: ByteSource = {
    ...source,
    async readInto(offset, target) {
      cells.store.dispose();
      expect(cells.memory.bytes).toBeGreaterThan(0);
      await source.readInto!(offset, target);
    },
  };
  await expect(cells.store.restore(slow, "program 1")).rejects.toThrow("the store of sequences was disposed of");
  expect(cells.memory.bytes).toBe(0);
});

/** A file with another header, and right checksums. */
function withHeader(bytes: Uint8Array, change: (header: object) => object): Uint8Array {
  const length = new DataView(bytes.buffer).getUint32(8, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(16, 16 + length)));
  return withText(bytes, JSON.stringify(change(header)));
}

function withText(bytes: Uint8Array, header: string): Uint8Array {
  const old = new DataView(bytes.buffer).getUint32(8, true);
  const text = new TextEncoder().encode(header);
  const forged = new Uint8Array([...bytes.subarray(0, 16), ...text, ...bytes.subarray(16 + old)]);
  const view = new DataView(forged.buffer);
  view.setUint32(8, text.length, true);
  view.setUint32(12, crc32c(text, crc32c(forged.subarray(0, 12))), true);
  view.setUint32(forged.length - 4, crc32c(forged.subarray(0, -4)), true);
  return forged;
}

/** 5 tokens of one layer in pages of 4 positions, as version 1 wrote them: keys 1 to 5, values 101 to 105. */
const GOLDEN =
  "TEJTUQEAAAC0AAAA/uuf/nsicHJvZ3JhbSI6InByb2dyYW0gMSIsInR5cGUiOiJmMzIiLCJwYWdlUG9zaXRpb25zIjo0LCJraW5kcyI6W3sia3ZIZWFkcyI6MSwiaGVhZERpbSI6MSwid2luZG93IjowLCJsYXllcnMiOjF9XSwic3RhdGVCeXRlcyI6MCwiYnJhbmNoIjoiIiwidG9rZW5zIjo1LCJmaXJzdFBhZ2VzIjpbMF0sImJvdW5kYXJ5IjowfQcAAAAIAAAACQAAAAoAAAALAAAAAQAAAAIAAAADAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAGUAAABmAAAAZwAAAGgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAaQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAxJhYg=";
