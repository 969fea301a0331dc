import { describe, expect, it } from "vitest";
import { ShapeError } from "../errors.ts";
import { f32ToBf16 } from "../half.ts";
import { cpuWith, hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { openPackedWithin } from "../kernels/layout/packed.ts";
import { operators } from "../registry/operators.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { EagerBuilder } from "./eager.ts";

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const f32 = (shape: number[], value: () => number): Tensor => ({
  dtype: "f32",
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, value),
});

/** Nibbles and scales as PyTorch takes them, and the float weights that they mean. */
function int4Weights(n: number, k: number, blockSize: number, scaleType: "f32" | "bf16", next: () => number) {
  const nibbles = Uint8Array.from({ length: (n * k) / 2 }, () => Math.floor(256 * next()));
  const groups = k / blockSize;
  const patterns = Uint16Array.from({ length: n * groups }, () => f32ToBf16(0.01 + 0.1 * next()));
  const values = Float32Array.from(patterns, (bits) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!);
  const scales: Tensor = { dtype: scaleType, shape: [n, groups], data: scaleType === "f32" ? values : patterns };
  const dense = new Float64Array(n * k);
  for (let r = 0; r < n; r++)
    for (let c = 0; c < k; c++) {
      const byte = nibbles[(r * k + c) >> 1]!;
      const level = (c % 2 === 0 ? byte & 15 : byte >> 4) - 8;
      dense[r * k + c] = level * values[r * groups + Math.floor(c / blockSize)]!;
    }
  return { weights: { dtype: "u8", shape: [n, k / 2], data: nibbles } satisfies Tensor, scales, dense };
}

/** Relative L2 error against a float product. Rounding activations to 8 bits costs under 1 %. */
function relativeError(y: Tensor, x: Tensor, dense: Float64Array, bias: Tensor | null, n: number): number {
  const k = x.shape.at(-1)!;
  let error = 0;
  let norm = 0;
  for (let i = 0; i < x.data.length / k; i++)
    for (let r = 0; r < n; r++) {
      let sum = bias ? Number(bias.data[r]) : 0;
      for (let c = 0; c < k; c++) sum += Number(x.data[i * k + c]) * dense[r * k + c]!;
      error += (Number(y.data[i * n + r]) - sum) ** 2;
      norm += sum ** 2;
    }
  return Math.sqrt(error / norm);
}

describe.each([hostCpu(), scalarCpu])("int4 operators on $name", (cpu) => {
  const ops = new EagerBuilder(operators, cpu);

  it.each([
    [1, 7, 64, 32],
    [9, 33, 96, 96],
  ] as const)("multiplies [%i, k] of bfloat16, [%i, %i] in blocks of %i, to bfloat16", (m, n, k, blockSize) => {
    const next = random(m + n);
    const { weights, scales } = int4Weights(n, k, blockSize, "f32", next);
    const packed = ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, blockSize, k, n);
    const patterns = Uint16Array.from({ length: m * k }, () => f32ToBf16(next() - 0.4));
    const x: Tensor = { dtype: "bf16", shape: [m, k], data: patterns };
    const y = ops.call("aten::_dyn_quant_matmul_4bit.out", x, packed, blockSize, k, n);
    const floats: Tensor = { dtype: "f32", shape: [m, k], data: toFloat32(x) };
    const expected = ops.call("aten::_dyn_quant_matmul_4bit.out", floats, packed, blockSize, k, n);
    expect([y.dtype, y.shape]).toEqual(["bf16", [m, n]]);
    expect(y.data).toEqual(Uint16Array.from(expected.data as Float32Array, f32ToBf16));
  });

  it("refuses activations of another type", () => {
    const { weights, scales } = int4Weights(4, 32, 32, "f32", random(1));
    const packed = ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, 32, 32, 4);
    const x: Tensor = { dtype: "f16", shape: [1, 32], data: new Uint16Array(32) };
    expect(() => ops.call("aten::_dyn_quant_matmul_4bit.out", x, packed, 32, 32, 4)).toThrow(ShapeError);
  });

  for (const [m, n, k, blockSize] of [
    [1, 7, 64, 32],
    [3, 33, 96, 96],
    [5, 16, 256, 128],
    [17, 21, 128, 64],
  ] as const)
    it(`multiplies [${m}, ${k}] by [${n}, ${k}] in blocks of ${blockSize}`, () => {
      const next = random(m * n * k);
      const x = f32([m, k], () => next() - 0.3);
      const bias = f32([n], () => next() - 0.5);
      for (const scaleType of ["f32", "bf16"] as const) {
        const { weights, scales, dense } = int4Weights(n, k, blockSize, scaleType, next);
        const packed = ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, bias, blockSize, k, n);
        const y = ops.call("aten::_dyn_quant_matmul_4bit.out", x, packed, blockSize, k, n);
        expect(y.shape).toEqual([m, n]);
        expect(relativeError(y, x, dense, bias, n)).toBeLessThan(0.01);
        const groupSize = blockSize === k ? 0 : blockSize;
        const kai = ops.call("aten::_kai_weights_pack_int4.out", weights, scales, n, k, groupSize);
        const z = ops.call("aten::_kai_input_quant_mm_int4.out", x, kai, m, n, k, groupSize);
        expect(relativeError(z, x, dense, null, n)).toBeLessThan(0.01);
      }
    });
});

it.each([hostCpu(), scalarCpu])("no rows of x give no rows on $name", (cpu) => {
  const ops = new EagerBuilder(operators, cpu);
  const { weights, scales } = int4Weights(7, 64, 32, "f32", random(9));
  const packed = ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, 32, 64, 7);
  const y = ops.call(
    "aten::_dyn_quant_matmul_4bit.out",
    f32([0, 64], () => 0),
    packed,
    32,
    64,
    7,
  );
  expect([y.shape, y.data.length]).toEqual([[0, 7], 0]);
});

describe("int4 operators", () => {
  const ops = new EagerBuilder(operators, scalarCpu);
  const weights: Tensor = { dtype: "u8", shape: [4, 32], data: new Uint8Array(128) };

  it("refuse block sizes that do not divide k", () => {
    const scales = f32([4, 1], () => 1);
    const pack = (blockSize: number) =>
      ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, blockSize, 64, 4);
    expect(() => pack(48)).toThrow(ShapeError);
    expect(() => pack(16)).toThrow(/block_size: expected k = 64 or a multiple of 32 that divides it but found 16/);
    expect(pack(64).data.length).toBeGreaterThan(0);
  });

  it("refuse a wrong number of scales", () => {
    const scales = f32([4, 1], () => 1);
    expect(() => ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, 32, 64, 4)).toThrow(
      /scales_zeros: expected 8 scales/,
    );
  });

  it.each([3, 64])("refuse a bias of %i values for 4 rows", (length) => {
    const [scales, bias] = [f32([4, 1], () => 1), f32([length], () => 1)];
    expect(() => ops.call("aten::_dyn_quant_pack_4bit_weight.out", weights, scales, bias, 64, 64, 4)).toThrow(
      `bias: expected shape [4] but found [${length}]`,
    );
  });

  const scales = f32([4, 1], () => 1);
  const packOn = (features: string) =>
    new EagerBuilder(operators, cpuWith(features)).call(
      ...(["aten::_dyn_quant_pack_4bit_weight.out", weights, scales, null, 64, 64, 4] as const),
    ).data as Uint8Array;
  const multiply = (data: Uint8Array) =>
    ops.call(
      "aten::_dyn_quant_matmul_4bit.out",
      ...([f32([1, 64], () => 1), { dtype: "u8", shape: [data.length], data }, 64, 64, 4] as const),
    );
  const layoutOf = (data: Uint8Array) => openPackedWithin(data, { n: 4, k: 64, groupSize: 64 }).layout.name;

  it("pack in the layout for the CPU, in buffers of one size", () => {
    const [wide, arm] = [packOn("scalar"), packOn("neon")];
    expect([layoutOf(wide), layoutOf(arm)]).toEqual(["panel16", "panel32"]);
    expect(arm.length).toBe(wide.length);
    expect(multiply(arm).data).toEqual(multiply(wide).data);
  });

  it("pack natively as in plain loops", () => {
    const native = packOn([...hostCpu().features].join());
    expect(native).toEqual(packOn(layoutOf(native) === "panel32" ? "neon" : "scalar"));
  });

  it("refuse bytes that are no packed weights, damaged or cut ones, and those of other sizes", () => {
    const packed = packOn("scalar");
    expect(() => multiply(packed.map(() => 7))).toThrow(/expected a lowbit or TorchAO header but found 0x7070707/);
    expect(() => multiply(packed.slice(0, 10))).toThrow(/expected a lowbit or TorchAO header|at least 64 bytes/);
    expect(() => multiply(packed.slice(0, 100))).toThrow(/the header says \d+ bytes but the buffer has 100/);
    expect(() => multiply(packed.with(20, 65))).toThrow(/the header's checksum does not match/);
    const x = f32([1, 64], () => 1);
    const other: Tensor = { dtype: "u8", shape: [packed.length], data: packed };
    expect(() => ops.call("aten::_dyn_quant_matmul_4bit.out", x, other, 32, 64, 4)).toThrow(
      /expected n 4, k 64, group size 32 but the header says n 4, k 64, group size 64/,
    );
  });
});
