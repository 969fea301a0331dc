/**
 * Kernels of recurrent layers against plain loops in double precision, and against themselves, bit for bit: a row's result
 * must not depend on the rows beside it, on how its sequence is cut into steps, or on threads.
 */
import { describe, expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  heap,
  isEmulated,
  machine,
  run,
} from "../../../../test/support/conformance.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { States } from "../../../../test/support/states.ts";
import type { Kernel } from "../../contract.ts";
import { processMemory } from "../../memory.ts";
import type { Run } from "../../sequence-table.ts";
import { linearRecurrence, shortConvolution } from "../index.ts";
import type { LinearRecurrenceArgs, ShortConvolutionArgs } from "./fields.ts";

const memory = processMemory();
const cpu = machine();
const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

/** Arguments without the sequences and the results. */
type Inputs<A> = Omit<A, "table" | "state" | "y">;

/** Of a family: numbers of its states, columns of its results, and the rows `first` .. of its inputs. */
interface Family<A> {
  stateElements(inputs: Inputs<A>): number;
  columns(inputs: Inputs<A>): number;
  slice(inputs: Inputs<A>, first: number, rows: number): Inputs<A>;
  /** Results of the rows of a run in double precision, from a state that it changes to the one after them. */
  expected(inputs: Inputs<A>, run: Run, state: Float64Array): number[];
}

const sliced = (values: Float32Array, all: number, first: number, rows: number) =>
  values.slice((values.length / all) * first, (values.length / all) * (first + rows));

const convolutions: Family<ShortConvolutionArgs> = {
  stateElements: ({ taps, channels }) => (taps - 1) * channels,
  columns: ({ channels }) => channels,
  slice: (inputs, first, rows) => ({ ...inputs, rows, x: sliced(inputs.x, inputs.rows, first, rows) }),
  expected({ channels, taps, x, weight, bias, silu }, { row, rows }, state) {
    const inputs = new Float64Array(state.length + rows * channels);
    inputs.set(state);
    inputs.set(x.subarray(row * channels, (row + rows) * channels), state.length);
    const results: number[] = [];
    for (let at = 0; at < rows * channels; at++) {
      let y = bias ? bias[at % channels]! : 0;
      for (let tap = 0; tap < taps; tap++)
        y += weight[tap * channels + (at % channels)]! * inputs[at + tap * channels]!;
      results.push(silu ? y / (1 + Math.exp(-y)) : y);
    }
    state.set(inputs.subarray(-state.length));
    return results;
  },
};

const recurrences: Family<LinearRecurrenceArgs> = {
  stateElements: ({ heads, keyDim, valueDim }) => heads * keyDim * valueDim,
  columns: ({ heads, valueDim }) => heads * valueDim,
  slice(inputs, first, rows) {
    const own = (values: Float32Array) => sliced(values, inputs.rows, first, rows);
    const { q, k, v, logDecay, beta } = inputs;
    return { ...inputs, rows, q: own(q), k: own(k), v: own(v), logDecay: own(logDecay), beta: beta && own(beta) };
  },
  expected({ keyHeads, heads, keyDim, valueDim, q, k, v, logDecay, beta, scale }, { row: first, rows }, state) {
    const results = new Array<number>(rows * heads * valueDim);
    for (let head = 0; head < heads; head++)
      for (let column = 0; column < valueDim; column++) {
        const place = (i: number) => (head * keyDim + i) * valueDim + column;
        for (let row = first; row < first + rows; row++) {
          const gate = row * heads + head;
          const key = (row * keyHeads + Math.floor(head / (heads / keyHeads))) * keyDim;
          let [known, y] = [0, 0];
          const decay = Math.exp(logDecay[gate]!);
          for (let i = 0; i < keyDim; i++) {
            state[place(i)]! *= decay;
            known += state[place(i)]! * k[key + i]!;
          }
          const value = v[gate * valueDim + column]!;
          const added = beta ? beta[gate]! * (value - known) : value;
          for (let i = 0; i < keyDim; i++) {
            state[place(i)]! += k[key + i]! * added;
            y += state[place(i)]! * q[key + i]!;
          }
          results[(row - first) * heads * valueDim + head * valueDim + column] = scale * y;
        }
      }
    return results;
  },
};

function distance(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  let error = 0;
  let length = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (found[i]! - expected[i]!) ** 2;
    length += expected[i]! ** 2;
  }
  return Math.sqrt(error / Math.max(length, 1e-300));
}

/** A step, the states that its sequences have before it, and what is expected of it. */
interface Step<A> {
  readonly name: string;
  readonly inputs: Inputs<A>;
  readonly runs: readonly Run[];
  readonly before: readonly Float32Array[];
  /** By run: results, and the state after it. */
  readonly results: readonly (readonly number[])[];
  readonly after: readonly Float64Array[];
}

/** Runs of these numbers of rows, each of a slot of its own, with rows of no run between them and at the end. */
function runsOf(counts: readonly number[], gap: number): { runs: Run[]; rows: number } {
  const runs: Run[] = [];
  let row = 0;
  for (const [i, rows] of counts.entries()) {
    runs.push({ row, rows, position: 3 * i, slot: counts.length - 1 - i });
    row += rows + gap;
  }
  return { runs, rows: row };
}

type StepArguments<A> = [
  family: Family<A>,
  random: Random,
  name: string,
  runs: ReturnType<typeof runsOf>,
  make: (rows: number) => Inputs<A>,
];

/** A step of which nothing is expected but that it is what other steps are. */
function bareStep<A>(...[family, random, name, { runs, rows }, make]: StepArguments<A>): Step<A> {
  const inputs = make(rows);
  const before = runs.map(() => random.floats(family.stateElements(inputs)));
  return { name, inputs, runs, before, results: [], after: [] };
}

function stepOf<A>(...given: StepArguments<A>): Step<A> {
  const [family] = given;
  const step = bareStep(...given);
  const states = step.runs.map(({ slot }) => Float64Array.from(step.before[slot]!));
  const results = step.runs.map((run, i) => family.expected(step.inputs, run, states[i]!));
  return { ...step, results, after: states };
}

/** Runs a step; its results, and the states after it. */
function taken<A>(kernel: Kernel<A>, family: Family<A>, { inputs, runs, before }: Step<A>, bench: Bench) {
  const states = new States(memory, before.length, family.stateElements(inputs));
  for (const [slot, values] of before.entries()) states.of(slot).set(values);
  states.setRuns(runs);
  const rows = (inputs as unknown as { rows: number }).rows;
  const y = new Float32Array(rows * family.columns(inputs)).fill(-7);
  run(kernel, { ...inputs, table: states.table, state: states.part, y } as unknown as A, bench);
  for (const [slot, values] of before.entries()) expectSame(states.of(slot), values, "a state that is read only");
  return { y, states };
}

function expectStep<A>(kernel: Kernel<A>, family: Family<A>, step: Step<A>): void {
  const columns = family.columns(step.inputs);
  for (const bench of benchesFor(kernel, benches)) {
    const { y, states } = taken(kernel, family, step, bench);
    const isOfNoRun = new Array<boolean>(y.length / columns).fill(true);
    for (const [i, { row, rows, slot }] of step.runs.entries()) {
      isOfNoRun.fill(false, row, row + rows);
      const found = y.subarray(row * columns, (row + rows) * columns);
      expect(distance(found, step.results[i]!), step.name).toBeLessThan(1e-5);
      expect(distance(states.of(slot, "next"), step.after[i]!), `${step.name}, state`).toBeLessThan(1e-5);
      expect(states.around(slot).every((byte) => byte === 0xa5)).toBe(true);
    }
    for (const [row, isNone] of isOfNoRun.entries())
      if (isNone) expect(y.subarray(row * columns, (row + 1) * columns).every(Number.isNaN), step.name).toBe(true);
  }
}

/** The rows of a step of one run in steps of `chunk` rows, beside as many of another sequence. */
function expectSameInChunks<A>(kernel: Kernel<A>, family: Family<A>, whole: Step<A>, other: Step<A>): void {
  const { y, states: after } = taken(kernel, family, whole, benches[0]!);
  const columns = family.columns(whole.inputs);
  const total = whole.runs[0]!.rows;
  for (const [chunk, beside, threads] of [
    [total, 3, 2],
    [1, 1, 3],
    [7, 2, 1],
  ] as const) {
    const states = new States(memory, 2, family.stateElements(whole.inputs));
    states.of(1).set(whole.before[0]!);
    for (let first = 0; first < total; first += chunk) {
      const rows = Math.min(chunk, total - first);
      states.of(0).set(other.before[0]!);
      states.setRuns([
        { row: 0, rows: beside, position: 0, slot: 0 },
        { row: beside, rows, position: first, slot: 1 },
      ]);
      const own = family.slice(whole.inputs, first, rows) as Record<string, unknown>;
      const rest = family.slice(other.inputs, 0, beside) as Record<string, unknown>;
      const joined = Object.entries(own).map(([name, value]) => {
        const isOfRows = value instanceof Float32Array && value !== (whole.inputs as Record<string, unknown>)[name];
        if (name === "rows") return [name, beside + rows];
        return [name, isOfRows ? Float32Array.from([...(rest[name] as Float32Array), ...value]) : value];
      });
      const found = new Float32Array((beside + rows) * columns);
      const args = { ...Object.fromEntries(joined), table: states.table, state: states.part, y: found };
      run(kernel, args as unknown as A, { memory: heap, threads });
      const name = `${whole.name}, rows ${first} .. of ${chunk}`;
      expectSame(found.subarray(beside * columns), y.subarray(first * columns, (first + rows) * columns), name);
      states.commit([1]);
    }
    expectSame(states.of(1), after.of(0, "next"), `${whole.name}, state after steps of ${chunk} rows`);
  }
}

const convolutionShapes = [
  { channels: 1, taps: 2, silu: false, hasBias: false },
  { channels: 37, taps: 4, silu: true, hasBias: true },
  { channels: 64, taps: 3, silu: true, hasBias: false },
  { channels: 130, taps: 9, silu: false, hasBias: true },
  { channels: 3072, taps: 4, silu: true, hasBias: false },
];

const makeConvolution =
  (random: Random, { channels, taps, silu, hasBias }: (typeof convolutionShapes)[number]) =>
  (rows: number): Inputs<ShortConvolutionArgs> => ({
    ...{ rows, channels, taps, silu },
    x: random.floats(rows * channels, 2),
    weight: random.floats(taps * channels),
    bias: hasBias ? random.floats(channels) : null,
  });

describeRows(shortConvolution, cpu, (kernel) => {
  it("is the convolution of each sequence, which keeps the last inputs", () => {
    const steps = madeOnce("steps of short convolutions", () => {
      const random = new Random(3);
      return convolutionShapes.flatMap((shape) =>
        [[1], [5, 1, 2], [1, 1, 1, 1], [40]].map((counts, gap) =>
          stepOf(
            convolutions,
            random,
            JSON.stringify({ shape, counts }),
            runsOf(counts, gap),
            makeConvolution(random, shape),
          ),
        ),
      );
    });
    for (const step of steps) expectStep(kernel, convolutions, step);
  });

  it("gives a row the same bits alone, in a batch, in any chunks and on any number of threads", () => {
    for (const shape of convolutionShapes) {
      const random = new Random(shape.channels);
      const make = makeConvolution(random, shape);
      const [whole, other] = [20, 3].map((rows) =>
        bareStep(convolutions, random, JSON.stringify(shape), runsOf([rows], 0), make),
      );
      const shared = { weight: whole!.inputs.weight, bias: whole!.inputs.bias };
      expectSameInChunks(kernel, convolutions, whole!, { ...other!, inputs: { ...other!.inputs, ...shared } });
    }
  });

  it("takes large values and those that are not finite as they are", () => {
    const inputs = { rows: 1, channels: 7, taps: 2, weight: new Float32Array(14).fill(1), bias: null, silu: true };
    const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
    const x = Float32Array.of(-1e30, -200, 200, 1e38, 0, infinity, nan);
    const runs = [{ row: 0, rows: 1, position: 0, slot: 0 }];
    const step = { name: "", inputs: { ...inputs, x }, runs, before: [new Float32Array(7)], results: [], after: [] };
    const y = [...taken(kernel, convolutions, step, benches[0]!).y].map((value) => value + 0);
    expect(y).toEqual([0, 0, 200, Math.fround(1e38), 0, infinity, nan]);
  });
});

const recurrenceShapes = [
  { keyHeads: 1, heads: 1, keyDim: 1, valueDim: 1 },
  { keyHeads: 1, heads: 3, keyDim: 5, valueDim: 7 },
  { keyHeads: 2, heads: 4, keyDim: 16, valueDim: 33 },
  { keyHeads: 3, heads: 3, keyDim: 65, valueDim: 80 },
  { keyHeads: 1, heads: 5, keyDim: 40, valueDim: 64 },
  { keyHeads: 2, heads: 2, keyDim: 128, valueDim: 128 },
  { keyHeads: 2, heads: 10, keyDim: 64, valueDim: 64 },
];
type RecurrenceShape = (typeof recurrenceShapes)[number];

/** What gates are of a row of a head. */
interface Gates {
  readonly logDecay: (random: Random) => number;
  /** Null without the delta rule. */
  readonly beta: ((random: Random) => number) | null;
}

const gates: Readonly<Record<string, Gates>> = {
  "the gated delta rule": { logDecay: (random) => -random.next(), beta: (random) => random.next() },
  "no delta rule": { logDecay: (random) => -0.2 * random.next(), beta: null },
};

/** Keys are of length 1, with which the delta rule does not grow. */
const makeRecurrence =
  (random: Random, shape: RecurrenceShape, { logDecay, beta }: Gates, size = 1) =>
  (rows: number): Inputs<LinearRecurrenceArgs> => {
    const { keyHeads, heads, keyDim, valueDim } = shape;
    const k = random.floats(rows * keyHeads * keyDim);
    for (let at = 0; at < k.length; at += keyDim) {
      const key = k.subarray(at, at + keyDim);
      const length = Math.hypot(...key);
      key.set(key.map((value) => value / length));
    }
    const gate = (of: (random: Random) => number) => Float32Array.from({ length: rows * heads }, () => of(random));
    return {
      ...{ ...shape, rows, k, scale: keyDim ** -0.5, q: random.floats(k.length, 2) },
      v: random.floats(rows * heads * valueDim, size),
      logDecay: gate(logDecay),
      beta: beta && gate(beta),
    };
  };

describeRows(linearRecurrence, cpu, (kernel) => {
  it.each(Object.entries(gates))("is the recurrence of each sequence by its definition, %s", (name, gate) => {
    const steps = madeOnce(`steps of ${name}`, () => {
      const random = new Random(4);
      return recurrenceShapes.flatMap((shape) =>
        [[1], [5, 1, 2], [1, 1, 1, 1], [isEmulated ? 60 : 300]].map((counts, gap) =>
          stepOf(
            recurrences,
            random,
            JSON.stringify({ shape, counts }),
            runsOf(counts, gap),
            makeRecurrence(random, shape, gate),
          ),
        ),
      );
    });
    for (const step of steps) expectStep(kernel, recurrences, step);
  });

  it.each(Object.entries(gates))(
    "gives a row the same bits alone, in a batch, in any chunks, on any threads, %s",
    (_, gate) => {
      for (const shape of recurrenceShapes) {
        const random = new Random(shape.valueDim);
        const [whole, other] = [20, 3].map((rows) =>
          bareStep(recurrences, random, JSON.stringify(shape), runsOf([rows], 0), makeRecurrence(random, shape, gate)),
        );
        expectSameInChunks(kernel, recurrences, whole!, other!);
      }
    },
  );

  it("writes states that are larger than caches", () => {
    const steps = madeOnce("steps of large states", () => {
      const random = new Random(7);
      const shape = { keyHeads: 4, heads: 8, keyDim: 128, valueDim: 128 };
      return Object.values(gates).map((gate) =>
        stepOf(recurrences, random, "8 heads", runsOf([1, 3], 1), makeRecurrence(random, shape, gate)),
      );
    });
    for (const step of steps) expectStep(kernel, recurrences, step);
  });

  describe("gates at their ends", () => {
    const of = (value: number) => () => value;
    it.each<[string, Gates, number]>([
      ["nothing decays, values are replaced", { logDecay: of(0), beta: of(1) }, 1],
      ["nothing decays, nothing is added", { logDecay: of(0), beta: of(0) }, 1],
      ["nothing decays, without beta", { logDecay: of(0), beta: null }, 1],
      ["all decays", { logDecay: of(Number.NEGATIVE_INFINITY), beta: of(1) }, 1],
      ["all decays but for what is too small to matter", { logDecay: of(-1000), beta: null }, 1],
      ["some decay all", { logDecay: (random) => random.pick([0, -100, -0.01]), beta: of(0.5) }, 1],
      ["what decays slowly", { logDecay: of(-1e-4), beta: (random) => random.next() }, 1],
      ["what grows", { logDecay: of(0.01), beta: null }, 1],
      ["large values", { logDecay: (random) => -random.next(), beta: (random) => random.next() }, 1e30],
      ["small values", { logDecay: of(-0.1), beta: null }, 1e-30],
    ])("%s", (name, gate, size) => {
      const steps = madeOnce(`steps where ${name}`, () => {
        const random = new Random(5);
        return [recurrenceShapes[2]!, { keyHeads: 1, heads: 1, keyDim: 128, valueDim: 80 }].map((shape) =>
          stepOf(recurrences, random, name, runsOf([3, 200, 1], 1), makeRecurrence(random, shape, gate, size)),
        );
      });
      for (const step of steps) expectStep(kernel, recurrences, step);
    });
  });

  it.each(Object.entries(gates))("keeps a row that is not finite from those before it, %s", (name, gate) => {
    const step = madeOnce(`a step of 70 rows of ${name}`, () => {
      const random = new Random(8);
      const make = makeRecurrence(random, { keyHeads: 1, heads: 1, keyDim: 64, valueDim: 64 }, gate);
      return stepOf(recurrences, random, "", runsOf([70], 0), make);
    });
    for (const value of [Number.POSITIVE_INFINITY, Number.NaN]) {
      const v = step.inputs.v.slice();
      v[45 * 64 + 3] = value;
      const { y } = taken(kernel, recurrences, { ...step, inputs: { ...step.inputs, v } }, benches[0]!);
      const before = y.subarray(0, 45 * 64);
      expect(distance(before, step.results[0]!.slice(0, before.length))).toBeLessThan(1e-5);
      expect(Number.isFinite(y[45 * 64 + 3])).toBe(false);
      expect(y.subarray(45 * 64 + 4, 46 * 64).every(Number.isFinite)).toBe(true);
    }
  });

  it("leaves out runs beyond the rows of the call", () => {
    const random = new Random(6);
    const shape = recurrenceShapes[1]!;
    const step = stepOf(
      recurrences,
      random,
      "",
      runsOf([2, 3], 0),
      makeRecurrence(random, shape, gates["no delta rule"]!),
    );
    const cut = { ...step, inputs: recurrences.slice(step.inputs, 0, 4) };
    const { y, states } = taken(kernel, recurrences, cut, benches[0]!);
    expect(y.subarray(0, 2 * 21).every(Number.isFinite)).toBe(true);
    expect(y.subarray(2 * 21).every(Number.isNaN)).toBe(true);
    expect(states.around(0).every((byte) => byte === 0xa5)).toBe(true);
    expect(new Uint8Array(states.of(0, "next").slice().buffer).every((byte) => byte === 0xa5)).toBe(true);
  });
});
