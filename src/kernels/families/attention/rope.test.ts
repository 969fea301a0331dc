/** Every row of rotary embedding against plain loops in double precision. */
import { it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { rope, ropeAngles } from "../index.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();

const position = (value: number) => BigInt64Array.of(BigInt(value));

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
