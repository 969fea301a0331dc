/** Eager models go on from, and back to, any position, as if all were computed at once. */
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { expectSame } from "../../test/support/same.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { EagerModel } from "./eager-model.ts";

const sliding = { architectures: ["MistralForCausalLM"], model_type: "mistral", sliding_window: 20 };

describe.each([
  ["that see all", {}],
  ["with windows", sliding],
])("of layers %s", (_, config) => {
  it.each(["f32", "f16", "int8", "int4"] as const)("forward at a position, %s", async (kvCache) => {
    const folder = await temporaryFolder();
    await writeTinyCheckpoint(folder, { config: { ...config, max_position_embeddings: 256 } });
    const model = await loadCheckpoint(folder);
    const load = () => EagerModel.load(model, { cpu: scalarCpu, kvCache });
    const eager = await load();
    let ids: number[] = [];
    for (const [position, count] of [
      [0, 150],
      [150, 1],
      [140, 30],
      [40, 7],
      [47, 1],
      [3, 70],
      [0, 2],
    ] as const) {
      const next = Array.from({ length: count }, (_, i) => (31 * (i + position + count)) % 250);
      ids = [...ids.slice(0, position), ...next];
      const found = (eager.forward(next, position).data as Float32Array).slice();
      expectSame(found, (await load()).forward(ids, 0).data as Float32Array, `at ${position}`);
    }
    expect(() => eager.forward([1], 3)).toThrow("position: expected a whole number from 0 to 2 but found 3");
    expect(() => eager.forward(new Array(255).fill(1), 2)).toThrow("expected 1 to 254 tokens at position 2");
    await model.close();
  });
});
