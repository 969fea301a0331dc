/** AQLM's operators, packing and kernels against a loop in double precision over plain codes. */
import { describe, expect, it } from "vitest";
import { ShapeError } from "../../../src/errors.ts";
import { f32ToF16 } from "../../../src/half.ts";
import { cpuWith } from "../../../src/kernels/cpu.ts";
import { zeroedBytes } from "../../../src/kernels/plan.ts";
import { EagerBuilder } from "../../../src/ops/eager.ts";
import { operators } from "../../../src/registry/operators.ts";
import type { Tensor } from "../../../src/tensor.ts";
import {
  benchesFor,
  describeRows,
  floats,
  heap,
  isEmulated,
  machine,
  place,
  run,
} from "../../../test/support/conformance.ts";
import { madeOnce } from "../../../test/support/made-once.ts";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, type AqlmWeights, codeArray, formCounts } from "./form.ts";
import { aqlmKernels } from "./kernels.ts";
import { codesIntact, openCodes, packCodes, packedLayout, unpackCodes } from "./layout.ts";
import { dequantizeAqlm } from "./reference.ts";
import "./register.ts";

/** Of any number of values: engines differ in how many arguments a call may have. */
const norm = (values: Float32Array) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

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

  it("are not made of too few codes, or of some beyond their codebook", () => {
    const weights = randomAqlm(new Random(3), form(64, 64, "2x6"));
    const failure = (codes: AqlmWeights["codes"]) => () => packCodes({ ...weights, codes }, "q:codes");
    expect(failure(weights.codes.subarray(1))).toThrow(
      new ShapeError("q:codes: expected 1024 of [64, 8, 2] but found 1023"),
    );
    expect(failure(weights.codes.with(5, 64))).toThrow(new ShapeError("q:codes: expected 0..63 but found 64 at 5"));
    const wide = { ...form(64, 64), vectors: weights.vectors, scales: weights.scales };
    expect(() => packCodes({ ...wide, codes: new Uint16Array(1024).fill(256, 1023) })).toThrow(
      new ShapeError("AQLM codes: expected 0..255 but found 256 at 1023"),
    );
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
    expect(() => call(name, weights, codes, x.subarray(0, 64), 1, bias)).not.toThrow();
    const other = randomAqlm(random, form(64, 64, "1x8"));
    expect(() => call(name, other, codes, x, 1, bias)).toThrow(
      /argument codebooks: expected 2x8 in groups of 8 inputs but found 1x8 in groups of 8/,
    );
    for (const [n, k] of [
      [0, 64],
      [64, 0],
    ] as const) {
      const none = randomAqlm(random, form(n, k));
      const empty: Tensor = { dtype: "u8", shape: [64], data: new Uint8Array(64) };
      expect(() => call(name, none, empty, x.subarray(0, k), 1, bias.subarray(0, n))).toThrow(
        `argument codebooks: expected AQLM weights of at least [1, 1] but found [${n}, ${k}]`,
      );
    }
  });
});

/** Relative error that a kernel may have, by what it rounds. */
function bound(name: string): number {
  if (name.includes("lut16")) return 6e-4;
  if (name.includes("lut12")) return 9e-4;
  if (name.includes("_i16_")) return 7e-5;
  if (name.includes("bf16")) return 6e-3;
  return 2e-6;
}

const unevenForm = form(40, 600);
/** How values of x and of vectors are changed from -1 .. 1, and how many times the usual error they may have. */
const uneven: Record<
  string,
  { x(v: number, i: number): number; vector(v: number, i: number): number; scale?: number; times?: number }
> = {
  "a second codebook of a hundredth": { x: (v) => v, vector: (v, i) => (i < 256 * 8 ? v : v / 100) },
  "positive x": { x: Math.abs, vector: (v) => v },
  "positive x and vectors": { x: Math.abs, vector: Math.abs },
  "nothing but zeros in x": { x: () => 0, vector: (v) => v },
  "nothing but zeros in codebooks": { x: (v) => v, vector: () => 0 },
  "rows of x of other sizes": { x: (v, i) => (i % (2 * unevenForm.k) < unevenForm.k ? v : 1e6 * v), vector: (v) => v },
  "inputs a hundred times as large": {
    ...{ x: (v, i) => ((i % unevenForm.k) % 397 === 5 ? 100 * v : v), vector: (v) => v },
    times: 5,
  },
  "bell-shaped": { x: bell, vector: bell, times: 1.5 },
  "scales as f32, beyond f16": { x: (v) => v, vector: (v) => v, scale: 1e-20 },
};
function bell(v: number): number {
  return Math.sign(v) * Math.sqrt(-2 * Math.log(1 - Math.min(Math.abs(v), 0.9999)));
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
  return { weights, x, bias, packed: packCodes(weights), ...expected(weights, x, m, bias) };
}

const caseOf = (shape: AqlmForm, m: number) =>
  madeOnce(`AQLM ${JSON.stringify(shape)}, m ${m}`, () => makeCase(shape, m));

describeRows(aqlmKernels, machine(), (kernel) => {
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

  it("keeps NaN and infinity of codebooks, and sizes that squares overflow at", () => {
    const random = new Random(7);
    const bench = benches[0]!;
    for (const shape of forms) {
      if (shape.n * shape.k > 10_000 || !kernel.layouts!.includes(packedLayout(shape))) continue;
      const weights = randomAqlm(random, shape);
      const m = kernel.mStep;
      const x = random.floats(m * shape.k).map((value) => value * 1e25);
      const codes = openCodes(place(bench, packCodes(weights)));
      const product = (vectors: AqlmArgs["vectors"]) => {
        const y = floats(bench, m * shape.n);
        run(kernel, { m, x: place(bench, x), codes, vectors, scales: weights.scales, bias: null, y }, bench);
        return y;
      };
      const { y: wanted, size } = expected(weights, x, m, null);
      const differences = product(weights.vectors).map((value, i) => (value - wanted[i]!) / size);
      expect(norm(differences), JSON.stringify(shape)).toBeLessThan(bound(kernel.name));
      const isHalf = weights.vectors instanceof Uint16Array;
      // There, halves of the largest exponent are numbers.
      if (isHalf && kernel.name === "aqlm_f32_cx_1x16x32_wasm_simd") continue;
      for (const bad of isHalf ? [0x7e00, 0x7c00] : [Number.NaN, Number.POSITIVE_INFINITY]) {
        const vectors = weights.vectors.slice();
        vectors[weights.codes[0]! * shape.outGroup * shape.inGroup] = bad;
        const found = product(vectors);
        const { y } = expected({ ...weights, vectors }, x, m, null);
        for (const [i, value] of y.entries())
          if (!Number.isFinite(value)) expect(Number.isFinite(found[i]), JSON.stringify(shape)).toBe(false);
        expect(Number.isFinite(y[0])).toBe(false);
      }
    }
  });

  it("multiplies uneven numbers: outliers, one sign, zeros, codebooks of other sizes", () => {
    const bench = benches[0]!;
    const shape = unevenForm;
    if (!kernel.layouts!.includes(packedLayout(shape))) return;
    const m = Math.max(kernel.mStep, 5);
    for (const [name, { x: value, vector, scale, times = 1 }] of Object.entries(uneven)) {
      const random = new Random(11);
      const weights = randomAqlm(random, shape);
      const scales = scale ? random.floats(shape.n, scale) : weights.scales;
      const vectors = Float32Array.from(random.floats(2 * 256 * 8), vector);
      const x = Float32Array.from(random.floats(m * shape.k), value);
      const { y: wanted, size } = expected({ ...weights, vectors, scales }, x, m, null);
      const y = floats(bench, m * shape.n);
      const codes = openCodes(place(bench, packCodes(weights)));
      run(kernel, { m, x: place(bench, x), codes, vectors, scales, bias: null, y }, bench);
      const differences = y.map((result, i) => (result - wanted[i]!) / (size || 1));
      const limit = times * bound(kernel.name);
      if (size === 0) expect(norm(y), name).toBe(0);
      else expect(norm(differences), name).toBeLessThan(limit);
    }
  });

  it("sums what is as large as can be: x and all vectors of one direction", () => {
    const bench = benches[0]!;
    for (const shape of [form(64, 136), form(64, 264, "16x8"), form(64, 1088, "5x8", 64), form(64, 136, "2x12")]) {
      if (!kernel.layouts!.includes(packedLayout(shape))) continue;
      const weights = randomAqlm(new Random(5), shape);
      const m = Math.max(kernel.mStep, 2);
      const sign = (i: number) => (i % 3 === 0 ? -1 : 1);
      const vectors = Float32Array.from(weights.vectors, (_, i) => sign(i % shape.inGroup));
      const x = Float32Array.from({ length: m * shape.k }, (_, i) => {
        const [row, j] = [Math.floor(i / shape.k), i % shape.k];
        return (row % 2 === 0 ? 1 : -1) * sign(j % shape.inGroup);
      });
      const { y: wanted, size } = expected({ ...weights, vectors }, x, m, null);
      const y = floats(bench, m * shape.n);
      const codes = openCodes(place(bench, packCodes(weights)));
      run(kernel, { m, x: place(bench, x), codes, vectors, scales: weights.scales, bias: null, y }, bench);
      const differences = y.map((value, i) => value - wanted[i]!);
      expect(norm(differences) / size, JSON.stringify(shape)).toBeLessThan(bound(kernel.name));
    }
  });

  it("multiplies as the definition does", () => {
    for (const shape of forms) {
      const layout = packedLayout(shape);
      if (!kernel.layouts!.includes(layout)) continue;
      for (const m of [1, 2, 3, 7, 33, 130].filter((rows) => rows >= kernel.mStep && rows < 40 * kernel.mStep)) {
        const { weights, x, bias, packed, y: wanted, size } = caseOf(shape, m);
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
          expect(norm(differences) / size, name).toBeLessThan(bound(kernel.name));
        }
      }
    }
  });
});
