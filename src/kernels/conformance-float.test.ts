/**
 * Every row of the kernel table that computes without weights in bits, but for attention: rotary embedding, norms, elementwise
 * operators, against plain loops in double precision. Bounds are a few roundings of the largest magnitude: kernels may sum
 * in float32, approximate exp, and multiply with 16 bits of each factor.
 */
import { expect, it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../test/support/conformance.ts";
import { Random } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { erf } from "./reference/erf.ts";
import {
  add,
  erfGeglu,
  geglu,
  groupSums,
  quickGeglu,
  reglu,
  rmsNorm,
  rope,
  ropeAngles,
  scale,
  softcap,
  softmax,
  squaredReglu,
  swiglu,
} from "./table.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();

const position = (value: number) => BigInt64Array.of(BigInt(value));

describeRows(rmsNorm, cpu, (kernel) => {
  it.each([1, 7, 64, 300])("rows of %i: x / sqrt(mean(x^2) + eps) * weight", (dim) => {
    const random = new Random(dim);
    for (const size of [1, 1e-4, 1e6])
      for (const rows of [1, 3]) {
        const x = random.floats(rows * dim, size);
        const weight = random.floats(dim, 2);
        const y = new Float32Array(rows * dim);
        const eps = 1e-5;
        run(kernel, { dim, x, weight, eps, y }, bench);
        const mean = (row: number) => x.slice(row * dim, (row + 1) * dim).reduce((sum, v) => sum + v * v, 0) / dim;
        const inverses = Array.from({ length: rows }, (_, row) => 1 / Math.sqrt(mean(row) + eps));
        const value = (i: number) => x[i]! * inverses[Math.floor(i / dim)]! * weight[i % dim]!;
        expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)));
      }
  });

  it("a row of zeros stays zero", () => {
    const y = new Float32Array(4).fill(9);
    run(kernel, { dim: 4, x: new Float32Array(4), weight: Float32Array.of(1, 2, 3, 4), eps: 1e-6, y }, bench);
    expectSame(y, new Float32Array(4));
  });
});

describeRows(ropeAngles, cpu, (kernel) => {
  it("cos and sin of position times frequency, as float32, times the scale", () => {
    const inverseFrequencies = Float32Array.of(1, 0.1, 0.0123, 1e-5);
    for (const [first, tokens, scale] of [
      [0, 1, 1],
      [3, 4, 1],
      [100_000, 2, 1],
      [5, 2, 1.25],
    ] as const) {
      const angles = new Float32Array(tokens * 8);
      run(kernel, { tokens, position: position(first), inverseFrequencies, scale, angles }, bench);
      const value = (i: number) => {
        const angle = Math.fround((first + Math.floor(i / 8)) * inverseFrequencies[i % 4]!);
        return scale * (i % 8 < 4 ? Math.cos(angle) : Math.sin(angle));
      };
      expectNear(angles, value, () => 1e-6);
    }
  });
});

describeRows(rope, cpu, (kernel) => {
  it.each([
    [1, 1, 8, 4],
    [3, 2, 8, 4],
    [2, 3, 10, 3],
    [1, 4, 64, 32],
  ])("turns pairs (i, i + half): tokens %i, heads %i, dimension %i, half %i", (tokens, heads, headDim, half) => {
    const random = new Random(heads);
    const turns = random.floats(tokens * half, 3);
    const angles = Float32Array.from({ length: tokens * 2 * half }, (_, i) => {
      const turn = turns[Math.floor(i / (2 * half)) * half + (i % half)]!;
      return i % (2 * half) < half ? Math.cos(turn) : Math.sin(turn);
    });
    const x = random.floats(tokens * heads * headDim, 5);
    const y = new Float32Array(x.length);
    run(kernel, { tokens, heads, headDim, half, x, angles, y }, bench);
    const value = (i: number) => {
      const d = i % headDim;
      if (d >= 2 * half) return x[i]!;
      const turn = turns[Math.floor(i / (heads * headDim)) * half + (d % half)]!;
      // The pair as a complex number times e^(i turn).
      const [re, im] = d < half ? [x[i]!, x[i + half]!] : [x[i - half]!, x[i]!];
      return d < half ? re * Math.cos(turn) - im * Math.sin(turn) : re * Math.sin(turn) + im * Math.cos(turn);
    };
    expectNear(y, value, () => 3e-6);
  });
});

describeRows(add, cpu, (kernel) => {
  it("a + alpha b", () => {
    const random = new Random(1);
    for (const length of [1, 15, 16, 17, 1000])
      for (const alpha of [1, -2.5]) {
        const a = random.floats(length, 10);
        const b = random.floats(length, 10);
        const y = new Float32Array(length);
        run(kernel, { a, b, alpha, y }, bench);
        expectNear(
          y,
          (i) => a[i]! + alpha * b[i]!,
          () => 4e-6,
        );
      }
  });

  it("may write over an argument", () => {
    const a = Float32Array.of(1, 2, 3);
    run(kernel, { a, b: Float32Array.of(10, 20, 30), alpha: 1, y: a }, bench);
    expect(a).toEqual(Float32Array.of(11, 22, 33));
  });
});

describeRows(swiglu, cpu, (kernel) => {
  it("a / (1 + exp(-a)) * b, also where exp overflows", () => {
    const random = new Random(1);
    for (const length of [1, 15, 16, 17, 1000]) {
      const a = random.floats(length, 20);
      a[0] = -1000;
      a[length - 1] = length > 1 ? 1000 : -1000;
      const b = random.floats(length, 10);
      const y = new Float32Array(length);
      run(kernel, { a, b, alpha: 1, y }, bench);
      const value = (i: number) => (a[i]! / (1 + Math.exp(-a[i]!))) * b[i]!;
      expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-30);
    }
  });
});

describeRows(geglu, cpu, (kernel) => {
  it("gelu(a) * b by the approximation with tanh, also where exp overflows", () => {
    const random = new Random(1);
    for (const length of [1, 15, 16, 17, 1000])
      for (const size of [5, 0.01]) {
        const a = random.floats(length, size);
        a[0] = -1000;
        a[length - 1] = length > 1 ? 1000 : -1000;
        const b = random.floats(length, 10);
        const y = new Float32Array(length);
        run(kernel, { a, b, alpha: 1, y }, bench);
        const inner = (x: number) => Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);
        const value = (i: number) => 0.5 * a[i]! * (1 + Math.tanh(inner(a[i]!))) * b[i]!;
        expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-6);
      }
  });
});

for (const [rows, activation] of [
  [erfGeglu, (x: number) => 0.5 * x * (1 + erf(x * Math.SQRT1_2))],
  [quickGeglu, (x: number) => x / (1 + Math.exp(-1.702 * x))],
  [reglu, (x: number) => Math.max(x, 0)],
  [squaredReglu, (x: number) => Math.max(x, 0) ** 2],
] as const)
  describeRows(rows, cpu, (kernel) => {
    it("f(a) * b", () => {
      const random = new Random(1);
      for (const length of [1, 15, 16, 17, 5000])
        for (const size of [5, 1, 0.01]) {
          const a = random.floats(length, size);
          a[0] = -1000;
          a[length - 1] = length > 1 ? 1000 : -1000;
          const b = random.floats(length, 10);
          const y = new Float32Array(length);
          run(kernel, { a, b, alpha: 1, y }, bench);
          const value = (i: number) => activation(a[i]!) * b[i]!;
          expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-6);
        }
    });
  });

describeRows(groupSums, cpu, (kernel) => {
  it("sums of groups, the last of which may be shorter", () => {
    const random = new Random(1);
    for (const [rows, k, groupSize] of [
      [1, 1, 1],
      [3, 64, 32],
      [2, 100, 32],
      [5, 33, 7],
      [4, 20, 64],
      [70, 256, 16],
    ] as const) {
      const x = random.floats(rows * k, 3);
      const groups = Math.ceil(k / groupSize);
      const y = new Float32Array(rows * groups);
      run(kernel, { rows, k, groupSize, x, y }, bench);
      const value = (i: number) => {
        const [row, first] = [Math.floor(i / groups), (i % groups) * groupSize];
        return x.slice(row * k + first, row * k + Math.min(k, first + groupSize)).reduce((sum, item) => sum + item, 0);
      };
      expectNear(y, value, () => 1e-4);
    }
  });
});

describeRows(scale, cpu, (kernel) => {
  it("x times a number", () => {
    const random = new Random(1);
    for (const length of [1, 15, 16, 17, 1000]) {
      const x = random.floats(length, 10);
      const y = new Float32Array(length);
      run(kernel, { x, value: -2.5, y }, bench);
      expect(y).toEqual(x.map((item) => -2.5 * item));
    }
  });
});

describeRows(softcap, cpu, (kernel) => {
  it("cap * tanh(x / cap), from the linear part to the ends", () => {
    const random = new Random(1);
    for (const length of [1, 15, 16, 17, 1000])
      for (const size of [1e-3, 30, 1e4]) {
        const x = random.floats(length, size);
        const y = new Float32Array(length);
        run(kernel, { x, value: 30, y }, bench);
        const value = (i: number) => 30 * Math.tanh(x[i]! / 30);
        expectNear(y, value, (i) => 1e-6 * Math.abs(value(i)));
      }
  });
});

describeRows(softmax, cpu, (kernel) => {
  it("rows add up to one, also of huge values", () => {
    const random = new Random(1);
    for (const dim of [1, 2, 33, 512])
      for (const size of [1, 1e4]) {
        const x = random.floats(3 * dim, size);
        const y = new Float32Array(3 * dim);
        run(kernel, { dim, x, y }, bench);
        for (let row = 0; row < 3; row++) {
          const values = x.subarray(row * dim, (row + 1) * dim);
          const max = Math.max(...values);
          const total = values.reduce((sum, v) => sum + Math.exp(v - max), 0);
          const found = y.subarray(row * dim, (row + 1) * dim);
          expectNear(
            found,
            (i) => Math.exp(values[i]! - max) / total,
            () => 2e-6,
          );
          expect(found.reduce((sum, v) => sum + v, 0)).toBeCloseTo(1, 5);
        }
      }
  });
});
