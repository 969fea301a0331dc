/** What keys and values are kept in when nobody says, and an eager model's of sequences that become long and short. */
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { expectSame } from "../../test/support/same.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidArgumentError } from "../errors.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { compileModel } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { EagerModel } from "./eager-model.ts";

const folder = await temporaryFolder();
beforeAll(() => writeTinyCheckpoint(folder, { config: { max_position_embeddings: 200_000 } }));

it.each([{ maxContextLen: 64 }, { logits: "all" }] as const)(
  "refuses %j of a program that takes it when it is loaded",
  async (options) => {
    const model = await loadCheckpoint(folder);
    const name = Object.keys(options)[0];
    expect(() => compileModel(model, options)).toThrow(`${name}: expected it with target executorch alone`);
    await model.close();
  },
);

it.each([
  [{ logits: "none" }, 'logits: expected last or all but found "none"'],
  [{ target: "ExecuTorch" }, 'target: expected lowbit or executorch but found "ExecuTorch"'],
])("refuses %j", async (options, message) => {
  const model = await loadCheckpoint(folder);
  const given = options as unknown as CompileModelOptions;
  expect(() => compileModel(model, given)).toThrow(new InvalidArgumentError(message));
  await expect(EagerModel.load(model, given)).rejects.toThrow(new InvalidArgumentError(message));
  await model.close();
});

it("an eager model computes what it keeps again when a sequence becomes longer or shorter than other angles are for", async () => {
  const scaled = await temporaryFolder();
  const factors = { short_factor: [1, 1, 1, 1], long_factor: [1, 2, 3, 4] };
  const rope = { rope_type: "longrope", original_max_position_embeddings: 6, ...factors };
  await writeTinyCheckpoint(scaled, { config: { rope_scaling: rope } });
  const model = await loadCheckpoint(scaled);
  const load = () => EagerModel.load(model, { cpu: scalarCpu });
  const ids = [3, 1, 4, 1, 5, 9, 2, 6];
  const eager = await load();
  for (const [position, count] of [
    [0, 8],
    [4, 1],
    [5, 2],
    [3, 3],
    [6, 2],
  ] as const) {
    const expected = (await load()).forward(ids.slice(0, position + count), 0);
    const found = eager.forward(ids.slice(position, position + count), position);
    expectSame(found.data as Float32Array, expected.data as Float32Array, `${count} at ${position}`);
  }
  for (const position of [9, -1, 0.5]) expect(() => eager.forward([1], position)).toThrow(InvalidArgumentError);
  await model.close();
});
