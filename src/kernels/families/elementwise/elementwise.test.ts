/** Sums, factors, caps and functions of single values against plain double precision. */
import { expect, it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { add } from "./add.ts";
import { gelu } from "./gelu.ts";
import { scale } from "./scale.ts";
import { scaleRows } from "./scale-rows.ts";
import { sigmoid } from "./sigmoid.ts";
import { softcap } from "./softcap.ts";
import { softplus } from "./softplus.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();
const LENGTHS = [1, 15, 16, 17, 1000, 20_003];

describeRows(add, cpu, (kernel) => {
  it("a + alpha b", () => {
    const random = new Random(1);
    for (const count of LENGTHS)
      for (const alpha of [1, -2.5]) {
        const [a, b, y] = [random.floats(count, 10), random.floats(count, 10), new Float32Array(count)];
        run(kernel, { count, a, b, alpha, y }, bench);
        expectNear(
          y,
          (i) => a[i]! + alpha * b[i]!,
          () => 4e-6,
        );
      }
  });

  it("may write over an argument", () => {
    const a = Float32Array.of(1, 2, 3);
    run(kernel, { count: 3, a, b: Float32Array.of(10, 20, 30), alpha: 1, y: a }, bench);
    expect(a).toEqual(Float32Array.of(11, 22, 33));
  });
});

describeRows(scale, cpu, (kernel) => {
  it("x times a number", () => {
    const random = new Random(1);
    for (const count of LENGTHS) {
      const [x, y] = [random.floats(count, 10), new Float32Array(count)];
      run(kernel, { count, x, factor: -2.5, y }, bench);
      expect(y).toEqual(x.map((item) => -2.5 * item));
    }
  });
});

describeRows(softcap, cpu, (kernel) => {
  it("cap * tanh(x / cap), from the linear part to the ends", () => {
    const random = new Random(1);
    for (const count of LENGTHS)
      for (const size of [1e-3, 30, 1e4]) {
        const [x, y] = [random.floats(count, size), new Float32Array(count)];
        run(kernel, { count, x, cap: 30, y }, bench);
        const value = (i: number) => 30 * Math.tanh(x[i]! / 30);
        expectNear(y, value, (i) => 1e-6 * Math.abs(value(i)));
      }
  });
});

describeRows(sigmoid, cpu, (kernel) => {
  it("1 / (1 + exp(-x)), also where exp overflows", () => {
    const random = new Random(1);
    for (const count of LENGTHS)
      for (const size of [20, 0.01]) {
        const [x, y] = [random.floats(count, size), new Float32Array(count)];
        x[0] = -1000;
        x[count - 1] = count > 1 ? 1000 : -1000;
        run(kernel, { count, x, y }, bench);
        const value = (i: number) => 1 / (1 + Math.exp(-x[i]!));
        expectNear(y, value, (i) => 1e-6 * value(i) + 1e-37);
      }
  });
});

/** GELU by integrating the normal distribution's density. */
function integratedGelu(x: number): number {
  const [steps, from] = [20000, -12];
  const width = (x - from) / steps;
  let sum = 0;
  for (let i = 0; i < steps; i++) sum += Math.exp(-((from + (i + 0.5) * width) ** 2) / 2);
  return (x * sum * width) / Math.sqrt(2 * Math.PI);
}

describeRows(gelu, cpu, (kernel) => {
  it.each([
    ["none", integratedGelu],
    ["tanh", (x: number) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))],
  ] as const)("GELU of each value, approximated by %s", (approximate, formula) => {
    const x = Float32Array.from({ length: 83 }, (_, i) => (i - 41) / 6);
    const y = new Float32Array(83);
    run(kernel, { count: 83, x, approximate, y }, bench);
    expectNear(
      y,
      (i) => formula(x[i]!),
      () => 2e-6,
    );
  });
});

describeRows(softplus, cpu, (kernel) => {
  const log1pExp = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

  it("factors * ln(1 + exp(x + bias))", () => {
    const random = new Random(1);
    for (const [rows, dim] of [
      [1, 1],
      [3, 16],
      [700, 33],
    ] as const)
      for (const size of [30, 1, 0.01]) {
        const x = random.floats(rows * dim, size);
        x[0] = 1000;
        x[x.length - 1] = -80;
        const [bias, factors] = [random.floats(dim, size), random.floats(dim, 4)];
        const y = x.slice();
        run(kernel, { rows, dim, x: y, bias, factors, y }, bench);
        // Far below 0, a rounding of x + bias is a larger share of the result.
        const value = (i: number) => factors[i % dim]! * log1pExp(x[i]! + bias[i % dim]!);
        expectNear(y, value, (i) => 8e-6 * Math.abs(value(i)) + 1e-37);
      }
  });

  it("is 0 far below 0, and NaN of NaN", () => {
    const y = new Float32Array(5);
    const x = Float32Array.of(-1000, Number.NEGATIVE_INFINITY, Number.NaN, Number.POSITIVE_INFINITY, 0);
    run(kernel, { rows: 1, dim: 5, x, bias: new Float32Array(5), factors: new Float32Array(5).fill(1), y }, bench);
    expect([...y]).toEqual([0, 0, Number.NaN, Number.POSITIVE_INFINITY, Math.fround(Math.LN2)]);
  });
});

describeRows(scaleRows, cpu, (kernel) => {
  it("factors that are fewer than rows begin anew", () => {
    const random = new Random(2);
    const [x, factors] = [random.floats(300 * 5, 3), random.floats(6, 3)];
    const y = new Float32Array(x.length);
    run(kernel, { rows: 300, dim: 5, factorCount: 6, x, factors, y }, bench);
    expect(y).toEqual(x.map((value, i) => value * factors[Math.floor(i / 5) % 6]!));
  });

  it("rows times a factor each, also in place", () => {
    const random = new Random(1);
    for (const [rows, dim] of [
      [1, 1],
      [5, 16],
      [300, 67],
    ] as const) {
      const [x, factors] = [random.floats(rows * dim, 3), random.floats(rows, 3)];
      const y = x.slice();
      run(kernel, { rows, dim, factorCount: rows, x: y, factors, y }, bench);
      expect(y).toEqual(x.map((value, i) => value * factors[Math.floor(i / dim)]!));
    }
  });
});
