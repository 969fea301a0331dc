/** BitNet's online mode against plain loops in double precision, and methods that nothing here does by their names. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { Random } from "../../../test/support/random.ts";
import { writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { capture, type MethodSource } from "../../compile/capture.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import { EagerBuilder } from "../../ops/eager.ts";
import { Ops } from "../../ops/ops.ts";
import type { Weight } from "../../ops/weight.ts";
import { operators } from "../../registry/operators.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";
import { loadCheckpoint } from "../load.ts";

const folder = await temporaryFolder();
const online = { quant_method: "bitnet", linear_class: "autobitlinear", quantization_mode: "online" };
let count = 0;

async function checkpoint(quantization: object): Promise<string> {
  const path = join(folder, `${++count}`);
  await writeTinyCheckpoint(path, { config: { tie_word_embeddings: false } });
  const file = join(path, "config.json");
  const config = JSON.parse(await readFile(file, "utf8"));
  await writeFile(file, JSON.stringify({ ...config, quantization_config: quantization }));
  return path;
}

/** x times the weight, whose constants are found by capturing the call. */
async function product(weight: Weight, x: Tensor): Promise<Float32Array> {
  const inputs = [{ name: "x", spec: { dtype: x.dtype, shape: x.shape }, smallest: x.shape }];
  const build: MethodSource["build"] = (captured, [value]) => [new Ops(captured).linear(value!, weight)];
  const graph = capture({ name: "forward", inputs, build }, operators, hostCpu());
  const builder = new EagerBuilder(operators, hostCpu());
  for (const value of graph.nodes.flatMap(({ args }) => args))
    if (typeof value === "object" && value && "constant" in value && value.constant) await builder.load(value.constant);
  return new Ops(builder).linear(x, weight).data as Float32Array;
}

/** Half to even. */
function round(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

it("has weights of three values, and rows rounded to 8 bits", async () => {
  const model = await loadCheckpoint(await checkpoint(online));
  const name = "model.layers.0.mlp.gate_proj.weight";
  const weight = model.weight(name);
  const [n, k] = weight.shape as [number, number];
  const stored = toFloat32(await model.checkpoint.tensors.read(name));
  const mean = stored.reduce((sum, value) => sum + Math.abs(value), 0) / stored.length;
  const rows = 3;
  const x = new Random(5).floats(rows * k);
  x.fill(0, k, 2 * k);
  const found = await product(weight, { dtype: "f32", shape: [1, rows, k], data: x });
  for (let row = 0; row < rows; row++) {
    const values = x.subarray(row * k, (row + 1) * k);
    const scale = 127 / Math.max(1e-5, ...values.map(Math.abs));
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let c = 0; c < k; c++) {
        const ternary = Math.max(-1, Math.min(1, round(stored[j * k + c]! / mean)));
        sum += ternary * mean * (Math.max(-128, Math.min(127, round(values[c]! * scale))) / scale);
      }
      expect(found[row * n + j]).toBeCloseTo(sum, 4);
    }
  }
  expect(model.storedFormat("lm_head.weight")).toBeNull();
  expect(model.storedFormat(name)).toBe("roundedRows");
  await model.close();
});

it.each([
  [
    { quant_method: "bitnet" },
    /quant_method "bitnet": expected weights of BitNet but found none; the weights are floats/,
  ],
  [{ ...online, use_rms_norm: true }, /use_rms_norm is not supported/],
  [{ ...online, modules_to_not_convert: 3 }, /modules_to_not_convert: expected a list of names but found 3/],
  [{ quant_method: "fp8" }, /quant_method "fp8": expected weights of FP8 but found none; the weights are floats/],
  [
    { quant_method: "quark" },
    /quant_method "quark" is not supported, only .*TorchAO, .*BitNet; the weights are floats/,
  ],
])("does not run %j as floats", async (quantization, message) => {
  await expect(loadCheckpoint(await checkpoint(quantization))).rejects.toThrow(message);
});

it("keeps the modules float that a checkpoint names", async () => {
  const path = await checkpoint({ ...online, modules_to_not_convert: ["model.layers.0", "v_proj"] });
  const model = await loadCheckpoint(path);
  const rounded = (name: string) => model.storedFormat(`${name}.weight`) === "roundedRows";
  expect(rounded("model.layers.0.mlp.up_proj")).toBe(false);
  expect(rounded("model.layers.1.self_attn.v_proj")).toBe(false);
  expect(rounded("model.layers.1.mlp.up_proj")).toBe(true);
  expect(rounded("lm_head")).toBe(true);
  await model.close();
});
