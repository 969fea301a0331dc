/** Files with more metadata than a first buffer holds are read back. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { openFile } from "../../node-file.ts";
import { readGgufHeader } from "./header.ts";
import { type GgufEntry, writeGguf } from "./writer.ts";

const folder = await temporaryFolder();

it.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])("a vocabulary of tokens of %i characters", async (length) => {
  const ids = Array.from({ length: 40_000 }, (_, i) => i);
  const tokens = ids.map((i) => String(i).padStart(length, "x"));
  const metadata = new Map<string, GgufEntry>([
    ["a.tokens", { type: "string", value: tokens }],
    ["a.scores", { type: "f32", value: ids }],
    ["a.flags", { type: "bool", value: ids.map((i) => i % 3 === 0) }],
    ["a.types", { type: "i32", value: ids }],
    ["a.name", { type: "string", value: "n".repeat(length) }],
  ]);
  const path = join(folder, `${length}.gguf`);
  const parts = async function* () {
    yield new Uint8Array(Float32Array.of(1, 2).buffer);
  };
  await writeGguf(path, metadata, [{ name: "t", type: 0, shape: [2], byteLength: 8, parts }]);
  const source = await openFile(path);
  const header = await readGgufHeader(source);
  const read = (key: string) => Array.from(header.metadata.get(key) as Iterable<unknown>);
  expect(read("a.tokens")).toEqual(tokens);
  expect(read("a.scores")).toEqual(ids);
  expect(read("a.flags").map(Boolean)).toEqual(ids.map((i) => i % 3 === 0));
  expect(read("a.types")).toEqual(ids);
  expect(new Float32Array((await source.read(header.dataStart, 8)).buffer)).toEqual(Float32Array.of(1, 2));
  await source.close();
});
