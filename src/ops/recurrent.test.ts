/** Operators of recurrent layers against other formulas of the same, in double precision. */
import { describe, expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { processMemory } from "../kernels/memory.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import { operators } from "../registry/operators.ts";
import { SequenceStore } from "../sequences/store.ts";
import type { Tensor } from "../tensor.ts";
import type { Argument } from "./call-arguments.ts";
import { EagerBuilder } from "./eager.ts";

const random = new Random(11);
const floats = (shape: readonly number[], size = 1): Tensor & { readonly data: Float32Array } => ({
  dtype: "f32",
  shape,
  data: random.floats(
    shape.reduce((product, n) => product * n, 1),
    size,
  ),
});
/** Rows of [1, T, n]. */
const rowsOf = ({ shape, data }: Tensor, first: number, end: number): Tensor => ({
  dtype: "f32",
  shape: [1, end - first, shape[2]!],
  data: (data as Float32Array).slice(first * shape[2]!, end * shape[2]!),
});

/** A call for rows of one sequence, `parts` of them after each other. */
async function inParts(
  use: SequenceUse,
  parts: readonly number[],
  call: (builder: EagerBuilder, first: number, end: number) => Tensor,
): Promise<Float32Array> {
  const options = { contextLength: 64, sequences: 2, cacheBytes: 1 << 20, type: "f32", stepTokens: 64 } as const;
  const store = new SequenceStore(processMemory(), [use], options);
  const builder = new EagerBuilder(operators, scalarCpu, { threads: 1, sequences: store.table });
  const sequence = store.open();
  const found: number[] = [];
  for (const rows of parts) {
    const first = sequence.position;
    sequence.reserve(rows);
    const y = await store.step([{ sequence, tokens: rows }], async () => call(builder, first, first + rows));
    sequence.commit(new Array(rows).fill(0));
    found.push(...(y.data as Float32Array));
  }
  store.dispose();
  return Float32Array.from(found);
}

function expectNear(found: Float32Array, expected: readonly number[]): void {
  expect(found.length).toBe(expected.length);
  for (const [i, value] of expected.entries())
    expect(Math.abs(found[i]! - value)).toBeLessThan(2e-6 * (1 + Math.abs(value)));
}

const partsOf = [[17], [1, 1, 2, 5, 8], [3, 14], new Array(17).fill(1)];

describe("lowbit::update_short_conv", () => {
  it.each([
    [2, false, true],
    [4, true, false],
    [20, false, false],
  ])("of %i taps is the convolution of all inputs, silu %s, bias %s", async (taps, silu, hasBias) => {
    const [T, C] = [17, 5];
    const [x, weight, bias] = [floats([1, T, C]), floats([taps, C]), floats([C])];
    const expected: number[] = [];
    for (let t = 0; t < T; t++)
      for (let c = 0; c < C; c++) {
        let y = hasBias ? bias.data[c]! : 0;
        for (let s = Math.max(0, t - taps + 1); s <= t; s++)
          y += weight.data[(taps - 1 - (t - s)) * C + c]! * x.data[s * C + c]!;
        expected.push(silu ? y * (1 / (1 + Math.exp(-y))) : y);
      }
    const use = { kind: "state", index: 3, byteLength: 4 * (taps - 1) * C } as const;
    const runs = partsOf.map((parts) =>
      inParts(use, parts, (builder, first, end) => {
        const given: Argument<Tensor>[] = [rowsOf(x, first, end), weight, hasBias ? bias : null];
        return builder.call("lowbit::update_short_conv.out", ...given, builder.sequences(), 3, silu);
      }),
    );
    const [whole, ...others] = await Promise.all(runs);
    expectNear(whole!, expected);
    for (const other of others) expect(other).toEqual(whole);
  });
});

describe("lowbit::linear_recurrence", () => {
  const [T, keyHeads, heads, K, V] = [17, 2, 6, 4, 3] as const;
  const [q, k] = [floats([1, T, keyHeads * K]), floats([1, T, keyHeads * K])];
  const v = floats([1, T, heads * V]);
  const logDecay = floats([1, T, heads], 0.5);
  const beta = floats([1, T, heads]);
  const use = { kind: "state", index: 0, byteLength: 4 * heads * K * V } as const;
  const at = ({ data }: Tensor & { readonly data: Float32Array }, row: number, index: number, width: number) =>
    data[row * width + index]!;
  const keyOf = (of: typeof q, t: number, head: number, i: number) =>
    at(of, t, Math.floor(head / (heads / keyHeads)) * K + i, keyHeads * K);

  const found = (withBeta: boolean) =>
    Promise.all(
      partsOf.map((parts) =>
        inParts(use, parts, (builder, first, end) => {
          const rows = (of: Tensor) => rowsOf(of, first, end);
          const given = [rows(q), rows(k), rows(v), rows(logDecay), withBeta ? rows(beta) : null];
          return builder.call("lowbit::linear_recurrence.out", ...given, builder.sequences(), 0, keyHeads, 0.7);
        }),
      ),
    );

  it("without beta is attention whose weights decay", async () => {
    const expected: number[] = [];
    for (let t = 0; t < T; t++)
      for (let h = 0; h < heads; h++)
        for (let j = 0; j < V; j++) {
          let y = 0;
          for (let s = 0; s <= t; s++) {
            let decay = 0;
            for (let r = s + 1; r <= t; r++) decay += at(logDecay, r, h, heads);
            let dot = 0;
            for (let i = 0; i < K; i++) dot += keyOf(q, t, h, i) * keyOf(k, s, h, i);
            y += 0.7 * Math.exp(decay) * dot * at(v, s, h * V + j, heads * V);
          }
          expected.push(y);
        }
    const [whole, ...others] = await found(false);
    expectNear(whole!, expected);
    for (const other of others) expect(other).toEqual(whole);
  });

  it("with beta is a product of matrices, S = exp(g) (I - beta k k^T) S + beta k v^T", async () => {
    const states = Array.from({ length: heads }, () => Array.from({ length: K }, () => new Array<number>(V).fill(0)));
    const expected: number[] = [];
    for (let t = 0; t < T; t++)
      for (const [h, before] of states.entries()) {
        const [b, g] = [at(beta, t, h, heads), Math.exp(at(logDecay, t, h, heads))];
        const after = before.map((row, i) =>
          row.map((_, j) => {
            let sum = b * keyOf(k, t, h, i) * at(v, t, h * V + j, heads * V);
            for (let l = 0; l < K; l++)
              sum += g * ((i === l ? 1 : 0) - b * keyOf(k, t, h, i) * keyOf(k, t, h, l)) * before[l]![j]!;
            return sum;
          }),
        );
        states[h] = after;
        for (let j = 0; j < V; j++)
          expected.push(0.7 * after.reduce((sum, row, i) => sum + keyOf(q, t, h, i) * row[j]!, 0));
      }
    const [whole, ...others] = await found(true);
    expectNear(whole!, expected);
    for (const other of others) expect(other).toEqual(whole);
  });
});

describe("calls that cannot be", () => {
  const builder = new EagerBuilder(operators, scalarCpu, {
    sequences: new SequenceStore(processMemory(), [{ kind: "state", index: 0, byteLength: 4 * 8 }], {
      contextLength: 8,
      sequences: 1,
      cacheBytes: 1 << 16,
      type: "f32",
    }).table,
  });
  const convolution = (x: readonly number[], weight: readonly number[], bias: readonly number[] | null, state = 0) =>
    builder.call(
      "lowbit::update_short_conv.out",
      floats(x),
      floats(weight),
      bias && floats(bias),
      builder.sequences(),
      state,
    );
  it.each([
    [() => convolution([2, 3, 4], [3, 4], null), "argument x: expected shape [1, T, channels] but found [2,3,4]"],
    [() => convolution([1, 3, 4], [1, 4], null), "argument weight: expected shape [2 or more, 4] but found [1,4]"],
    [() => convolution([1, 3, 4], [3, 5], null), "argument weight: expected shape [2 or more, 4] but found [3,5]"],
    [() => convolution([1, 3, 4], [3, 4], [3]), "argument bias: expected shape [4] but found [3]"],
    [() => convolution([1, 3, 4], [4, 4], null), "argument state: expected a state of 12 numbers that the store has"],
    [() => convolution([1, 3, 4], [3, 4], null, 1), "argument state: expected a state of 8 numbers that the store has"],
    [() => convolution([1, 3, 4], [3, 4], null, -1), "argument state: expected a whole number of at least 0"],
  ])("%#: %s", (call, message) => {
    expect(call).toThrow(message);
  });

  const recurrence = (shapes: readonly (readonly number[] | null)[], keyHeads = 2) =>
    builder.call(
      "lowbit::linear_recurrence.out",
      ...shapes.map((shape) => shape && floats(shape)),
      builder.sequences(),
      0,
      keyHeads,
    );
  const q = [1, 3, 4];
  const gates = [1, 3, 4];
  it.each([
    [[[1, 3, 5], q, [1, 3, 4], gates, null], "argument q: expected shape [1, 3, a multiple of 2] but found [1,3,5]"],
    [[q, [1, 3, 6], [1, 3, 4], gates, null], "argument k: expected the shape of q [1,3,4] but found [1,3,6]"],
    [[q, q, [1, 2, 4], gates, null], "argument v: expected shape [1, 3, a multiple of 4] but found [1,2,4]"],
    [[q, q, [1, 3, 6], gates, null], "argument v: expected shape [1, 3, a multiple of 4] but found [1,3,6]"],
    [[q, q, q, [1, 3, 3], null], "argument log_decay: expected shape [1, 3, a multiple of 2] but found [1,3,3]"],
    [[q, q, q, gates, [1, 3, 2]], "argument beta: expected the shape of log_decay [1,3,4] but found [1,3,2]"],
    [[q, q, [1, 3, 8], gates, null], "argument state: expected a state of 16 numbers that the store has"],
  ])("%j", (shapes, message) => {
    expect(() => recurrence(shapes)).toThrow(message);
  });
});
