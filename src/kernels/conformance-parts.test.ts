/** Products, sigmoids, softplus and factors of rows against plain double precision. */
import { expect, it } from "vitest";
import { type Bench, describeRows, heap, machine, run } from "../../test/support/conformance.ts";
import { Random } from "../../test/support/random.ts";
import { multiply, scaleRows, sigmoid, sigmoidGate, softplus } from "./table.ts";

const bench: Bench = { memory: heap, threads: 2 };
const LENGTHS = [1, 15, 16, 17, 5000];

/** Values of a size, the first and the last where exp overflows. */
function wide(random: Random, length: number, size: number): Float32Array {
  const values = random.floats(length, size);
  values[0] = -1000;
  values[length - 1] = length > 1 ? 1000 : -1000;
  return values;
}

function expectNear(found: Float32Array, expected: (i: number) => number, share = 1e-6): void {
  for (let i = 0; i < found.length; i++)
    if (!(Math.abs(found[i]! - expected(i)) <= share * Math.abs(expected(i)) + 1e-37))
      expect(found[i], `[${i}]`).toBe(expected(i));
}

const sigmoidOf = (x: number) => 1 / (1 + Math.exp(-x));

for (const [rows, activation] of [
  [multiply, (x: number) => x],
  [sigmoidGate, sigmoidOf],
] as const)
  describeRows(rows, machine(), (kernel) => {
    it("f(a) * b, also where it lies over b", () => {
      const random = new Random(1);
      for (const length of LENGTHS)
        for (const size of [20, 0.01]) {
          const [a, b] = [wide(random, length, size), random.floats(length, 10)];
          const y = b.slice();
          run(kernel, { a, b: y, alpha: 1, y }, bench);
          expectNear(y, (i) => activation(a[i]!) * b[i]!);
        }
    });
  });

describeRows(sigmoid, machine(), (kernel) => {
  it("1 / (1 + exp(-x))", () => {
    const random = new Random(1);
    for (const length of LENGTHS)
      for (const size of [20, 0.01]) {
        const x = wide(random, length, size);
        const y = new Float32Array(length);
        run(kernel, { x, value: 0, y }, bench);
        expectNear(y, (i) => sigmoidOf(x[i]!));
      }
  });
});

describeRows(softplus, machine(), (kernel) => {
  const log1pExp = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

  it("factors * ln(1 + exp(x + bias))", () => {
    const random = new Random(1);
    for (const [count, dim] of [
      [1, 1],
      [3, 16],
      [700, 33],
    ] as const)
      for (const size of [30, 1, 0.01]) {
        const x = random.floats(count * dim, size);
        x[0] = 1000;
        x[x.length - 1] = -80;
        const [bias, factors] = [random.floats(dim, size), random.floats(dim, 4)];
        const y = x.slice();
        run(kernel, { dim, x: y, bias, factors, y }, bench);
        // Far below 0, a rounding of x + bias is a larger share of the result.
        expectNear(y, (i) => factors[i % dim]! * log1pExp(x[i]! + bias[i % dim]!), 8e-6);
      }
  });

  it("is 0 far below 0, and NaN of NaN", () => {
    const y = new Float32Array(5);
    const x = Float32Array.of(-1000, Number.NEGATIVE_INFINITY, Number.NaN, Number.POSITIVE_INFINITY, 0);
    run(kernel, { dim: 5, x, bias: new Float32Array(5), factors: new Float32Array(5).fill(1), y }, bench);
    expect([...y]).toEqual([0, 0, Number.NaN, Number.POSITIVE_INFINITY, Math.fround(Math.LN2)]);
  });
});

describeRows(scaleRows, machine(), (kernel) => {
  it("factors that are fewer than rows begin anew", () => {
    const random = new Random(2);
    const [x, factors] = [random.floats(300 * 5, 3), random.floats(6, 3)];
    const y = new Float32Array(x.length);
    run(kernel, { dim: 5, x, factors, y }, bench);
    expect(y).toEqual(x.map((value, i) => value * factors[Math.floor(i / 5) % 6]!));
  });

  it("rows times a factor each, also in place", () => {
    const random = new Random(1);
    for (const [count, dim] of [
      [1, 1],
      [5, 16],
      [300, 67],
    ] as const) {
      const [x, factors] = [random.floats(count * dim, 3), random.floats(count, 3)];
      const y = x.slice();
      run(kernel, { dim, x: y, factors, y }, bench);
      expect(y).toEqual(x.map((value, i) => value * factors[Math.floor(i / dim)]!));
    }
  });
});
