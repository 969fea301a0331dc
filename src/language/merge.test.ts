/** Several streams as one. */
import { describe, expect, it, vi } from "vitest";
import { merge } from "./merge.ts";

async function* delayed(values: readonly (readonly [ms: number, value: string])[], ended = () => {}) {
  try {
    for (const [ms, value] of values) {
      await new Promise((resolve) => setTimeout(resolve, ms));
      yield value;
    }
  } finally {
    ended();
  }
}

async function read(stream: AsyncIterable<string>): Promise<string[]> {
  const found: string[] = [];
  for await (const value of stream) found.push(value);
  return found;
}

describe("merge", () => {
  it("gives the values of each in their order, whichever comes first", async () => {
    const streams = [
      delayed([
        [0, "a1"],
        [60, "a2"],
      ]),
      delayed([
        [20, "b1"],
        [0, "b2"],
      ]),
      delayed([]),
    ];
    const found = await read(merge(streams));
    expect(found.toSorted()).toEqual(["a1", "a2", "b1", "b2"]);
    expect(found.indexOf("a1")).toBeLessThan(found.indexOf("a2"));
    expect(found.indexOf("b1")).toBeLessThan(found.indexOf("b2"));
    expect(await read(merge([]))).toEqual([]);
    expect(await read(merge([delayed([[0, "x"]])]))).toEqual(["x"]);
  });

  it.each([1, 2])("ends all of %i when one fails, or when the reader leaves", async (count) => {
    const ended = vi.fn();
    async function* failing(): AsyncGenerator<string> {
      yield "x";
      throw new Error("broken");
    }
    const others = Array.from({ length: count - 1 }, () =>
      delayed(
        [
          [0, "a"],
          [20, "b"],
        ],
        ended,
      ),
    );
    await expect(read(merge([failing(), ...others]))).rejects.toThrow("broken");
    expect(ended).toHaveBeenCalledTimes(count - 1);
    const streams = Array.from({ length: count }, () =>
      delayed(
        [
          [0, "a"],
          [20, "b"],
        ],
        ended,
      ),
    );
    for await (const _ of merge(streams)) break;
    expect(ended).toHaveBeenCalledTimes(2 * count - 1);
  });
});
