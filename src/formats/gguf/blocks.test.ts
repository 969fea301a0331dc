/** Block formats against values that ggml's gguf package computed in numpy (scripts/goldens/gguf-goldens.py). */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { expectSame } from "../../../test/support/same.ts";
import { emptyBlock } from "./block-format.ts";
import { blockFormats, dequantizeBlocks } from "./blocks.ts";

const goldens = JSON.parse(readFileSync(new URL("blocks.json.golden", import.meta.url), "utf8")) as Record<
  string,
  { readonly id: number; readonly blocks: string; readonly values: string }
>;

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "base64"));

describe.each(Object.entries(goldens))("%s", (name, golden) => {
  const format = blockFormats.find((candidate) => candidate.name === name)!;
  const blocks = bytesOf(golden.blocks);
  const expected = new Float32Array(bytesOf(golden.values).buffer);

  it("has the same values, bit by bit", () => {
    expect(format.id).toBe(golden.id);
    const values = new Float32Array(expected.length);
    dequantizeBlocks(format, blocks, values);
    expectSame(values, expected);
  });

  it("has integers of its bits", () => {
    const block = emptyBlock(format);
    const low = format.hasMinima ? 0 : -(2 ** (format.bits - 1));
    for (let at = 0; at < blocks.length; at += format.bytes) {
      format.decode(blocks, at, block);
      expect(Math.min(...block.q)).toBeGreaterThanOrEqual(low);
      expect(Math.max(...block.q)).toBeLessThan(low + 2 ** format.bits);
    }
  });
});

it("covers every format", () => {
  expect(blockFormats.map(({ name }) => name).sort()).toEqual(Object.keys(goldens).sort());
});
