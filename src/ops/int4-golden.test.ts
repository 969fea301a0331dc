/** The 4-bit operators against what PyTorch's own computed (int4-golden.json says with what). */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { f32ToBf16 } from "../half.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { operators } from "../registry/operators.ts";
import type { Tensor } from "../tensor.ts";
import { EagerBuilder } from "./eager.ts";

interface GoldenCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly blockSize: number;
  readonly scaleType: "f32" | "bf16";
  /** Bytes [n, k / 2]. */
  readonly weights: number[];
  readonly scales: number[];
  readonly bias: number[] | null;
  readonly x: number[];
  readonly y: number[];
}

const { cases } = JSON.parse(readFileSync(new URL("int4-golden.json", import.meta.url), "utf8")) as {
  cases: GoldenCase[];
};

const floats = (shape: number[], values: number[]): Tensor => ({
  dtype: "f32",
  shape,
  data: Float32Array.from(values),
});

describe.each([hostCpu(), scalarCpu])("int4 operators on $name", (cpu) => {
  const ops = new EagerBuilder(operators, cpu);
  it.each(cases)("[$m, $k] by [$n, $k] in blocks of $blockSize is PyTorch's", (item) => {
    const { m, n, k, blockSize, scaleType } = item;
    const weights: Tensor = { dtype: "u8", shape: [n, k / 2], data: Uint8Array.from(item.weights) };
    const shape = [n, k / blockSize];
    const scales: Tensor =
      scaleType === "f32"
        ? floats(shape, item.scales)
        : { dtype: "bf16", shape, data: Uint16Array.from(item.scales, f32ToBf16) };
    const bias = item.bias && floats([n], item.bias);
    const packed = ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, bias, blockSize, k, n);
    const y = ops.call("aten::_dyn_quant_matmul_4bit.out", floats([m, k], item.x), packed, blockSize, k, n);
    const largest = Math.max(...item.y.map(Math.abs));
    const off = item.y.map((value, i) => Math.abs(Number(y.data[i]) - value) / largest);
    // PyTorch divides by the scale of activations, lowbit multiplies by its inverse: now and then one is rounded to the
    // next step, which moves a row of y by some thousandths.
    expect(Math.max(...off)).toBeLessThan(3e-3);
    expect(off.filter((distance) => distance < 1e-6).length).toBeGreaterThan(0.8 * off.length);
  });
});
