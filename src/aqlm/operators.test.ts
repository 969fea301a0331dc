/** AQLM's operators, packing and kernels against a loop in double precision over plain codes. */
import { describe, expect, it } from "vitest";
import { benchesFor, describeRows, floats, heap, isEmulated, place, run } from "../../test/support/conformance.ts";
import { madeOnce } from "../../test/support/made-once.ts";
import { Random } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { f16Table } from "../extension/index.ts";
import { cpuWith, f32ToF16, hostCpu, operators, type Tensor } from "../index.ts";
import { zeroedBytes } from "../kernels/plan.ts";
import { EagerBuilder } from "../ops/eager.ts";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, type AqlmWeights, codeArray, formCounts } from "./form.ts";
import { aqlmKernels } from "./kernels.ts";
import { codesIntact, openCodes, packCodes, packedLayout, unpackCodes } from "./layout.ts";
import { dequantizeAqlm } from "./reference.ts";

function randomAqlm(random: Random, form: AqlmForm): AqlmWeights {
  const { outputs, inputs, entries } = formCounts(form);
  const codes = codeArray(form.bits, outputs * inputs * form.codebooks).map(() => random.integer(0, entries - 1));
  const vectors = random.floats(form.codebooks * entries * form.outGroup * form.inGroup);
  return {
    ...form,
    codes: codes as Uint8Array | Uint16Array,
    // Of one form f32, which checkpoints may have, too.
    vectors: form.bits === 12 ? vectors : Uint16Array.from(vectors, f32ToF16),
    scales: Uint16Array.from(random.floats(outputs), f32ToF16),
  };
}

const form = (n: number, k: number, name = "2x8", inGroup = 8, outGroup = 1): AqlmForm => {
  const [codebooks, bits] = name.split("x").map(Number) as [number, number];
  return { n, k, codebooks, bits, inGroup, outGroup };
};

const allForms: readonly AqlmForm[] = [
  form(64, 128),
  form(1, 8),
  form(65, 264),
  form(300, 1096),
  form(512, 2048),
  form(70, 4232),
  form(96, 144, "1x8", 16),
  form(64, 512, "8x8", 32),
  form(64, 2176, "8x8"),
  form(72, 400, "1x8"),
  form(33, 136, "1x16"),
  form(130, 664, "1x16"),
  form(70, 256, "2x8", 8, 2),
  form(40, 96, "3x5", 8, 4),
  form(24, 64, "1x12"),
];
const forms = allForms.filter(({ n, k }) => !isEmulated || n * k < 20_000);

/** y in double precision, and the size of its terms. */
function expected(weights: AqlmWeights, x: Float32Array, m: number, bias: Float32Array | null) {
  const { n, k } = weights;
  const w = dequantizeAqlm(weights);
  const y = new Float64Array(m * n);
  let squares = 0;
  for (let i = 0; i < m; i++)
    for (let row = 0; row < n; row++) {
      let sum = bias ? bias[row]! : 0;
      for (let c = 0; c < k; c++) sum += w[row * k + c]! * x[i * k + c]!;
      y[i * n + row] = sum;
      squares += sum * sum;
    }
  return { y, size: Math.sqrt(squares) };
}

describe("packed codes", () => {
  it("unpack to what was packed", () => {
    const random = new Random(1);
    for (const shape of forms) {
      const weights = randomAqlm(random, shape);
      const packed = packCodes(weights);
      expectSame(unpackCodes(openCodes(packed)), weights.codes);
      expect(openCodes(packed).form).toEqual(shape);
      expect(codesIntact(packed)).toBe(true);
      packed[packed.length - 1]! ^= 1;
      expect(codesIntact(packed)).toBe(false);
    }
  });

  it("are refused when they are damaged or cut", () => {
    const packed = packCodes(randomAqlm(new Random(2), form(64, 64)));
    const damaged = (at: number) => {
      const bytes = packed.slice();
      bytes[at]! ^= 1;
      return () => openCodes(bytes);
    };
    expect(damaged(0)).toThrow(/expected magic 0x3141424c/);
    expect(damaged(16)).toThrow(/header's checksum does not match/);
    expect(() => openCodes(packed.subarray(0, 63))).toThrow(/at least 64 bytes/);
    expect(() => openCodes(packed.subarray(0, -1))).toThrow(/bytes but found/);
  });
});

describe("operators", () => {
  const random = new Random(4);
  const call = (name: string, weights: AqlmWeights, codes: Tensor, x: Float32Array, m: number, bias: Float32Array) => {
    const { outputs, entries } = formCounts(weights);
    const builder = new EagerBuilder(operators, cpuWith("scalar"));
    const sizes = [weights.codebooks, entries, weights.outGroup, weights.inGroup];
    return builder.call(
      name,
      { dtype: "f32", shape: [1, m, weights.k], data: x },
      codes,
      { dtype: weights.vectors instanceof Uint16Array ? "f16" : "f32", shape: sizes, data: weights.vectors },
      { dtype: "f16", shape: [outputs, 1, 1, 1], data: weights.scales },
      { dtype: "f32", shape: [weights.n], data: bias },
    );
  };

  it("take packed codes and plain ones in upstream's order", () => {
    for (const shape of forms) {
      const weights = randomAqlm(random, shape);
      const { outputs, inputs } = formCounts(shape);
      const [x, bias] = [random.floats(2 * shape.k), random.floats(shape.n)];
      const packed = packCodes(weights);
      const plain = codeArray(shape.bits, weights.codes.length);
      for (let o = 0; o < outputs; o++)
        for (let g = 0; g < inputs; g++)
          for (let c = 0; c < shape.codebooks; c++)
            plain[(g * outputs + o) * shape.codebooks + c] = weights.codes[(o * inputs + g) * shape.codebooks + c]!;
      const signed = plain instanceof Uint8Array ? new Int8Array(plain.buffer) : new Int16Array(plain.buffer);
      const name = shape.codebooks === 2 && shape.bits === 8 ? "aqlm::code2x8_lut_matmat.out" : "aqlm::code_matmat.out";
      const one = call(name, weights, { dtype: "u8", shape: [packed.length], data: packed }, x, 2, bias);
      const dtype = plain instanceof Uint8Array ? "i8" : "i16";
      const sizes = [inputs, outputs, shape.codebooks];
      const other = call(name, weights, { dtype, shape: sizes, data: signed }, x, 2, bias);
      expect([one.shape, other.shape]).toEqual([
        [1, 2, shape.n],
        [1, 2, shape.n],
      ]);
      const { y } = expected(weights, x, 2, bias);
      for (const { data } of [one, other])
        for (const [i, value] of y.entries())
          if (!(Math.abs(Number(data[i]) - value) < 5e-4)) expect(data[i], `[${i}]`).toBeCloseTo(value, 3);
    }
  });

  it("refuse what does not fit", () => {
    const weights = randomAqlm(random, form(64, 64));
    const packed = packCodes(weights);
    const codes: Tensor = { dtype: "u8", shape: [packed.length], data: packed };
    const x = random.floats(128);
    const bias = random.floats(64);
    const name = "aqlm::code2x8_lut_matmat.out";
    expect(() => call(name, { ...weights, k: 128 }, codes, x, 1, bias)).toThrow(
      /argument codes: expected .* packed bytes/,
    );
    expect(() => call(name, weights, codes, x.subarray(0, 64), 1, bias.subarray(1))).not.toThrow();
    const other = randomAqlm(random, form(64, 64, "1x8"));
    expect(() => call(name, other, codes, x, 1, bias)).toThrow(
      /argument codebooks: expected 2x8 in groups of 8 inputs but found 1x8 in groups of 8/,
    );
  });
});

/**
 * How far results [m, n] may be off where tables have 8 bits: each sum of 16 groups of inputs is of entries rounded to
 * 1/127 of the table's largest, half a step each.
 */
function tableRounding(weights: AqlmWeights, x: Float32Array, m: number): Float64Array {
  const { n, k, codebooks, inGroup } = weights;
  const { entries, inputs } = formCounts(weights);
  const vectors = Float32Array.from(weights.vectors, (bits) => f16Table()[bits]!);
  const largestOf = (start: number) => {
    let largest = 0;
    for (let entry = 0; entry < codebooks * entries; entry++) {
      let sum = 0;
      for (let j = 0; j < inGroup; j++) sum += x[start + j]! * vectors[entry * inGroup + j]!;
      largest = Math.max(largest, Math.abs(sum));
    }
    return largest;
  };
  const bounds = new Float64Array(m * n);
  for (let row = 0; row < m; row++) {
    let rounding = 0;
    for (let first = 0; first < inputs; first += 16) {
      const groups = Array.from({ length: Math.min(16, inputs - first) }, (_, g) => row * k + (first + g) * inGroup);
      rounding += (groups.length * codebooks * Math.max(...groups.map(largestOf))) / 127 / 2;
    }
    for (let i = 0; i < n; i++) bounds[row * n + i] = 1.001 * rounding * Math.abs(f16Table()[weights.scales[i]!]!);
  }
  return bounds;
}

/** Relative error that a kernel may have, by what it rounds. */
function bound(name: string): number {
  // Of many outputs, whose roundings are independent; tableRounding bounds each.
  if (name.includes("lut8")) return 0.02;
  if (name.includes("lut16")) return 6e-4;
  if (name.includes("bf16")) return 6e-3;
  return 2e-6;
}

const benches = [
  { memory: heap, threads: 1 },
  { memory: zeroedBytes, threads: 3 },
];

/** A call and what it must give, made once for all rows. */
function makeCase(shape: AqlmForm, m: number) {
  const random = new Random(31 * shape.n + shape.k + m);
  const weights = randomAqlm(random, shape);
  const x = random.floats(m * shape.k);
  const bias = m % 2 === 0 ? random.floats(shape.n) : null;
  // On emulated CPUs there are rows for them.
  const bounds = isEmulated && packedLayout(shape) === "aqlm_tiles8" ? tableRounding(weights, x, m) : null;
  return { weights, x, bias, packed: packCodes(weights), bounds, ...expected(weights, x, m, bias) };
}

const caseOf = (shape: AqlmForm, m: number) =>
  madeOnce(`AQLM ${JSON.stringify(shape)}, m ${m}`, () => makeCase(shape, m));

describeRows(aqlmKernels, hostCpu(), (kernel) => {
  it("gives no numbers for rows with NaN or infinity, and leaves the others alone", () => {
    const bench = benches[0]!;
    const m = kernel.mStep <= 3 ? 3 : 33;
    for (const shape of forms) {
      if (shape.n * shape.k > 20_000 || !kernel.layouts!.includes(packedLayout(shape))) continue;
      const { weights, packed, ...usual } = caseOf(shape, m);
      const x = usual.x.slice();
      x[shape.k >> 1] = Number.NaN;
      x[x.length - 1] = Number.NEGATIVE_INFINITY;
      const y = floats(bench, m * shape.n);
      const codes = openCodes(place(bench, packed));
      const { vectors, scales } = weights;
      run(kernel, { m, x: place(bench, x), codes, vectors, scales, bias: null, y }, bench);
      const finite = Array.from({ length: m }, (_, row) => y.subarray(row * shape.n, (row + 1) * shape.n)).map(
        (values) => values.filter(Number.isFinite).length,
      );
      expect(finite, JSON.stringify(shape)).toEqual([0, ...new Array(m - 2).fill(shape.n), 0]);
    }
  });

  it("multiplies as the definition does", () => {
    for (const shape of forms) {
      const layout = packedLayout(shape);
      if (!kernel.layouts!.includes(layout)) continue;
      for (const m of [1, 2, 3, 7, 33, 130].filter((rows) => rows >= kernel.mStep && rows < 40 * kernel.mStep)) {
        const { weights, x, bias, packed, y: wanted, size, ...made } = caseOf(shape, m);
        for (const bench of benchesFor(kernel, benches)) {
          const args: AqlmArgs = {
            m,
            x: place(bench, x),
            codes: openCodes(place(bench, packed)),
            vectors: weights.vectors,
            scales: weights.scales,
            bias: bias && place(bench, bias),
            y: floats(bench, m * shape.n),
          };
          run(kernel, args, bench);
          const differences = args.y.map((value, i) => value - wanted[i]!);
          const name = `${JSON.stringify(shape)}, m ${m}`;
          if (kernel.name.includes("lut8")) {
            const bounds = made.bounds ?? tableRounding(weights, x, m);
            const shares = differences.map((value, i) => Math.abs(value) / (bounds[i]! + 1e-6));
            expect(Math.max(...shares), name).toBeLessThan(1);
            if (m * shape.n < 16) continue;
          }
          expect(Math.hypot(...differences) / size, name).toBeLessThan(bound(kernel.name));
        }
      }
    }
  });
});
