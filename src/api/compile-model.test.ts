/** What keys and values are kept in when nobody says. */
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { type CompileModelOptions, compileModel } from "./compile-model.ts";
import { loadCheckpoint } from "./model.ts";

const folder = await temporaryFolder();
beforeAll(() => writeTinyCheckpoint(folder, { config: { max_position_embeddings: 200_000 } }));

/** Dtypes of the states of a program. */
async function stateTypes(options: CompileModelOptions): Promise<Set<string>> {
  const model = await loadCheckpoint(folder);
  const { methods } = compileModel(model, options);
  await model.close();
  const { values } = methods.find(({ name }) => name === "forward")!;
  return new Set(values.flatMap((v) => (v.kind === "tensor" && v.allocation?.memoryId === 2 ? [v.dtype] : [])));
}

it("is f32 up to 32 MiB, then f16", async () => {
  // 2 layers of keys and values, 2 heads of 8 floats: 256 bytes a position.
  const most = (32 * 2 ** 20) / 256;
  expect(await stateTypes({ maxContextLen: most })).toEqual(new Set(["f32"]));
  expect(await stateTypes({ maxContextLen: most + 1 })).toEqual(new Set(["f16"]));
  expect(await stateTypes({ maxContextLen: most + 1, kvCache: "f32" })).toEqual(new Set(["f32"]));
  expect(await stateTypes({ maxContextLen: 64, kvCache: "int8" })).toEqual(new Set(["i8", "f32"]));
});
