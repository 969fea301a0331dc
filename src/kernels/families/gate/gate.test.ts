/** Gated activations against plain double precision. */
import { expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  expectNear,
  heap,
  machine,
  run,
} from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import type { ActivationName } from "./activations.ts";
import { clampedGate } from "./clamped-gate.ts";
import { gate } from "./gate.ts";
import { gateHalves } from "./gate-halves.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));
const bench = benches[1]!;
const cpu = machine();
const LENGTHS = [1, 15, 16, 17, 1000, 5000];

/** The normal distribution by integrating its density. */
function normalCdf(x: number): number {
  const [steps, from] = [4000, -12];
  const width = (x - from) / steps;
  let sum = 0;
  for (let i = 0; i < steps; i++) sum += Math.exp(-((from + (i + 0.5) * width) ** 2) / 2);
  return (sum * width) / Math.sqrt(2 * Math.PI);
}

const definitions: Readonly<Record<ActivationName, (x: number) => number>> = {
  silu: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => (x < -12 ? 0 : x > 12 ? x : x * normalCdf(x)),
  geluTanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  quickGelu: (x) => x / (1 + Math.exp(-1.702 * x)),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  relu: (x) => Math.max(x, 0),
  squaredRelu: (x) => Math.max(x, 0) ** 2,
  identity: (x) => x,
};
const names = Object.keys(definitions) as ActivationName[];

/** Values of a size, the first and the last where exp overflows. */
function wide(random: Random, length: number, size: number): Float32Array {
  const values = random.floats(length, size);
  values[0] = -1000;
  values[length - 1] = length > 1 ? 1000 : -1000;
  return values;
}

describeRows(gate, cpu, (kernel) => {
  it.each(names)("%s(gate) * up, also over up", (activation) => {
    const random = new Random(1);
    const lengths = activation === "gelu" ? [1, 17, 67] : LENGTHS;
    for (const length of lengths)
      for (const size of [20, 5, 0.01]) {
        const [x, up] = [wide(random, length, size), random.floats(length, 10)];
        const y = up.slice();
        run(kernel, { count: length, gate: x, up: y, activation, y }, bench);
        const value = (i: number) => definitions[activation](x[i]!) * up[i]!;
        expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-6, `${length} of ${size}`);
      }
  });

  it.each(["silu", "sigmoid", "identity"] as const)("%s is near in all its range", (activation) => {
    const random = new Random(2);
    for (const size of [80, 1e-3, 1e-20]) {
      const [x, up] = [random.floats(999, size), random.floats(999, 10)];
      const y = new Float32Array(999);
      run(kernel, { count: 999, gate: x, up, activation, y }, bench);
      const value = (i: number) => definitions[activation](x[i]!) * up[i]!;
      expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-30);
    }
  });

  it.each(["relu", "squaredRelu"] as const)("%s gives NaN where the gate is", (activation) => {
    const x = Float32Array.from({ length: 33 }, (_, i) => (i % 2 === 0 ? Number.NaN : -1));
    const y = new Float32Array(33);
    run(kernel, { count: 33, gate: x, up: new Float32Array(33).fill(1), activation, y }, bench);
    expect(y.every((value, i) => (i % 2 === 0 ? Number.isNaN(value) : value === 0))).toBe(true);
  });

  it("refuses an activation that there is not", () => {
    const [x, up, y] = [1, 2, 3].map(() => new Float32Array(2));
    const args = { count: 2, gate: x!, up: up!, activation: "tanh" as "silu", y: y! };
    expect(() => run(kernel, args, bench)).toThrow(/gate: expected one of silu, .* as activation but found tanh/);
  });
});

describeRows(gateHalves, cpu, (kernel) => {
  it.each(["silu", "geluTanh"] as const)("gates the right half of each row by %s of the left", (activation) => {
    const random = new Random(1);
    for (const dim of [1, 5, 16, 33, 100])
      for (const rows of [1, 4, 70])
        for (const each of benchesFor(kernel, benches)) {
          const gateUp = random.floats(2 * rows * dim, 8);
          const y = new Float32Array(rows * dim);
          run(kernel, { rows, dim, gateUp, activation, y }, each);
          const at = (i: number, half: number) => gateUp[(2 * Math.floor(i / dim) + half) * dim + (i % dim)]!;
          const value = (i: number) => definitions[activation](at(i, 0)) * at(i, 1);
          expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-6);
        }
  });
});

describeRows(clampedGate, cpu, (kernel) => {
  it("(clamp(up) + 1) * c * sigmoid(slope * c), c = min(gate, limit), and NaN where one of both is", () => {
    const [count, slope, limit] = [1037, 1.702, 7];
    for (const each of benchesFor(kernel, benches)) {
      const random = new Random(3);
      const [x, up, y] = [random.floats(count, 12), random.floats(count, 12), new Float32Array(count)];
      [x[5], up[9], up[21]] = [Number.NaN, Number.NaN, Number.POSITIVE_INFINITY];
      run(kernel, { count, gate: x, up, slope, limit, y }, each);
      for (const [i, found] of y.entries()) {
        const c = Math.min(x[i]!, limit);
        const expected = (Math.max(-limit, Math.min(up[i]!, limit)) + 1) * (c / (1 + Math.exp(-slope * c)));
        if (Number.isNaN(expected)) expect(found, `${i}`).toBeNaN();
        else expect(Math.abs(found - expected)).toBeLessThan(1e-5 * (1 + Math.abs(expected)));
      }
    }
  });
});
