/** Every row of routers, of rows by expert, and of linear layers by expert, which must be the linear layers' rows, bit for bit. */
import { describe, expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  floats,
  heap,
  machine,
  place,
  run,
} from "../../../../test/support/conformance.ts";
import { Random, randomFloatWeights, randomWeights, weightVariants } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import type { Cpu, CpuFeature, Kernel, KernelTarget } from "../../contract.ts";
import { scalarCpu } from "../../cpu.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import { packedQuery, selectKernel, selectLayout } from "../../select.ts";
import * as table from "../index.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../linear/fields.ts";
import type { ExpertLinearArgs, ExpertMatrices, RouteArgs } from "./fields.ts";
import { routeReference } from "./reference.ts";
import { routingLength, routingParts } from "./routing.ts";

const cpu = machine();
const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

type Router = Omit<RouteArgs, "logits" | "routing" | "bias" | "factors">;

const routers: readonly Router[] = [
  { rows: 1, experts: 6, topK: 2, scores: "softmax", normalize: true, eps: 0, scale: 1 },
  { rows: 37, experts: 128, topK: 8, scores: "softmax", normalize: false, eps: 0, scale: 1 },
  { rows: 9, experts: 7, topK: 3, scores: "sigmoid", normalize: true, eps: 1e-6, scale: 2.5 },
  { rows: 70, experts: 4, topK: 4, scores: "sigmoid", normalize: false, eps: 0, scale: 1 },
  { rows: 5, experts: 1, topK: 1, scores: "softmax", normalize: true, eps: 0, scale: 1 },
];

/** Experts and weights of a row as the definition says it, in double precision. */
function routed(router: Router, logits: Float32Array, bias: Float32Array | null, factors: Float32Array | null) {
  const exps = [...logits].map(Math.exp);
  const total = exps.reduce((sum, value) => sum + value, 0);
  const scores =
    router.scores === "softmax" ? exps.map((value) => value / total) : exps.map((value) => value / (1 + value));
  const rank = (e: number) => scores[e]! + (bias ? bias[e]! : 0);
  const chosen = [...scores.keys()].sort((a, b) => rank(b) - rank(a)).slice(0, router.topK);
  const sum = chosen.reduce((all, e) => all + scores[e]!, 0);
  const weight = (e: number) => (router.normalize ? scores[e]! / (sum + router.eps) : scores[e]!);
  return { chosen, weights: chosen.map((e) => weight(e) * router.scale * (factors ? factors[e]! : 1)) };
}

function routingBy(kernel: Kernel<RouteArgs>, args: Omit<RouteArgs, "routing">, bench: Bench): Int32Array {
  const length = routingLength(args.rows, args.experts, args.topK);
  const bytes = bench.memory(4 * length);
  const routing = new Int32Array(bytes.buffer, bytes.byteOffset, length).fill(-1);
  run(kernel, { ...args, logits: place(bench, args.logits), routing }, bench);
  return routing;
}

describeRows(table.route, cpu, (kernel) => {
  it("chooses the best experts of each row and puts rows in their order", () => {
    for (const [i, router] of routers.entries())
      for (const bench of benchesFor(kernel, benches)) {
        const { rows, experts, topK } = router;
        const random = new Random(i);
        const logits = random.floats(rows * experts, 3);
        const [bias, factors] = i === 2 ? [random.floats(experts), random.floats(experts, 2)] : [null, null];
        const routing = routingBy(kernel, { ...router, logits, bias, factors }, bench);
        const { starts, sources, places, weights } = routingParts(routing, router);
        expect([starts[0], starts[experts]]).toEqual([0, rows * topK]);
        for (let row = 0; row < rows; row++) {
          const own = logits.subarray(row * experts, (row + 1) * experts);
          const expected = routed(router, own, bias, factors);
          for (const [j, expert] of expected.chosen.entries()) {
            const at = places[row * topK + j]!;
            expect(at >= starts[expert]! && at < starts[expert + 1]!, `row ${row}, expert ${expert}`).toBe(true);
            expect(sources[at]).toBe(row);
            expect(weights[row * topK + j]).toBeCloseTo(expected.weights[j]!, 6);
          }
        }
        for (let expert = 0; expert < experts; expert++)
          expect([...sources.subarray(starts[expert]!, starts[expert + 1]!)]).toEqual(
            [...sources.subarray(starts[expert]!, starts[expert + 1]!)].sort((a, b) => a - b),
          );
      }
  });

  it("gives places that are none twice for logits that are no numbers", () => {
    const router = { ...routers[1]!, bias: null, factors: null };
    const logits = new Float32Array(router.rows * router.experts).fill(Number.NaN);
    const { places } = routingParts(routingBy(kernel, { ...router, logits }, benches[0]!), router);
    expect([...places].sort((a, b) => a - b)).toEqual([...places.keys()]);
  });
});

/** A routing of rows to experts: one has all rows, or they are dealt out unevenly. */
function routingOf(random: Random, rows: number, experts: number, topK: number, isEven: boolean): Int32Array {
  const logits = random.floats(rows * experts, 2);
  if (!isEven) for (let row = 0; row < rows; row++) logits[row * experts + 1] = 9;
  const router = {
    rows,
    experts,
    topK,
    scores: "softmax" as const,
    normalize: true,
    eps: 0,
    scale: 1,
    bias: null,
    factors: null,
  };
  return routingBy(routeReference, { ...router, logits }, benches[0]!);
}

describeRows(table.expertRows, cpu, (kernel) => {
  it("copies each row to its places, and NaN where a routing names none", () => {
    for (const bench of benchesFor(kernel, benches)) {
      const [rows, experts, topK, dim] = [19, 6, 3, 10];
      const random = new Random(4);
      const [x, routing] = [random.floats(rows * dim), routingOf(random, rows, experts, topK, true)];
      const { sources } = routingParts(routing, { rows, experts, topK });
      [sources[7], sources[8]] = [-1, rows];
      const y = floats(bench, rows * topK * dim);
      run(kernel, { rows, experts, topK, dim, x: place(bench, x), routing: place(bench, routing), y }, bench);
      for (const [at, row] of sources.entries())
        for (let c = 0; c < dim; c++) expect(y[at * dim + c]).toBe(x[row * dim + c] ?? Number.NaN);
    }
  });
});

describeRows(table.combineExperts, cpu, (kernel) => {
  it("sums what a row's experts made by their weights, and gives NaN where a routing names no place", () => {
    for (const bench of benchesFor(kernel, benches)) {
      const [rows, experts, topK, dim] = [33, 9, 4, 37];
      const random = new Random(5);
      const [x, routing] = [random.floats(rows * topK * dim), routingOf(random, rows, experts, topK, true)];
      const { places, weights } = routingParts(routing, { rows, experts, topK });
      [places[11], places[12]] = [-5, rows * topK];
      const y = floats(bench, rows * dim);
      run(kernel, { rows, experts, topK, dim, x: place(bench, x), routing: place(bench, routing), y }, bench);
      for (let row = 0; row < rows; row++)
        for (let c = 0; c < dim; c++) {
          let sum = 0;
          for (let j = row * topK; j < (row + 1) * topK; j++)
            sum += weights[j]! * (x[places[j]! * dim + c] ?? Number.NaN);
          if (Number.isNaN(sum)) expect(y[row * dim + c]).toBeNaN();
          else expect(y[row * dim + c]).toBeCloseTo(sum, 5);
        }
    }
  });
});

describeRows(table.scatterExperts, cpu, (kernel) => {
  it("writes what a row's experts made to their columns, and one less than the least of it elsewhere", () => {
    const [rows, experts, topK, dim, size] = [7, 9, 4, 5, 45];
    const random = new Random(6);
    const [x, routing] = [random.floats(rows * topK * dim), routingOf(random, rows, experts, topK, true)];
    const keys = random.floats(size);
    const columns = Int32Array.from([...keys.keys()].sort((a, b) => keys[a]! - keys[b]!));
    // Columns that there are not are left out.
    [columns[3], columns[17]] = [-1, size];
    const y = new Float32Array(rows * size);
    run(kernel, { rows, topK, experts, dim, size, x, routing, columns, y }, benches[0]!);
    const { starts, places } = routingParts(routing, { rows, experts, topK });
    for (let row = 0; row < rows; row++) {
      const own = [...places.subarray(row * topK, (row + 1) * topK)];
      const made = own.flatMap((at) => [...x.subarray(at * dim, (at + 1) * dim)]);
      const expected = new Float32Array(size).fill(Math.min(...made) - 1);
      for (const [j, at] of own.entries()) {
        const expert = starts.subarray(1).findIndex((end) => at < end);
        for (let i = 0; i < dim; i++) {
          const column = columns[expert * dim + i]!;
          if (column >= 0 && column < size) expected[column] = made[j * dim + i]!;
        }
      }
      expectSame(y.subarray(row * size, (row + 1) * size), expected, `row ${row}`);
    }
  });
});

/** CPUs whose kernels linear layers by expert of a target call: those that are best here, each way of WebAssembly, plain loops. */
function cpusFor({ target }: Pick<Kernel<never>, "target">): readonly Cpu[] {
  if (target === "reference") return [scalarCpu];
  if (target === "native") return [{ name: target, features: cpu.features }];
  const ways: readonly (readonly CpuFeature[])[] = [["relaxed_dot"], ["relaxed_dot16", "split_dot"], []];
  return ways
    .filter((way) => way.every((feature) => feature === "split_dot" || cpu.features.has(feature)))
    .map((way) => ({ name: `${target} ${way.join()}`, features: new Set<CpuFeature>(["simd128", ...way]) }));
}

interface Layer<A> {
  readonly what: string;
  readonly n: number;
  readonly k: number;
  readonly matrices: ExpertMatrices<A>;
}

const EXPERTS = 5;

function choicesOf<A>(kernels: readonly Kernel<A>[], select: (m: number) => Kernel<A>): ExpertMatrices<A>["choices"] {
  const from = [...new Set([1, ...kernels.flatMap(({ mStep, groups = [] }) => [mStep, ...groups.map(({ m }) => m)])])];
  return from
    .sort((a, b) => a - b)
    .map((m) => ({ from: m, kernel: select(m) }))
    .filter(({ kernel }, i, all) => all[i - 1]?.kernel !== kernel);
}

/** Weights of all widths and forms in turns, of which one expert's scales are negative, where kernels of the CPU multiply them. */
function packedLayers(
  kernels: readonly Kernel<PackedLinearArgs>[],
  on: Cpu,
  target: KernelTarget,
): Layer<PackedLinearArgs>[] {
  const sizes = [
    { n: 40, k: 96, groupSize: 32 },
    { n: 33, k: 64, groupSize: 64 },
    { n: 16, k: 160, groupSize: 160 },
    { n: 50, k: 80, groupSize: 16 },
  ];
  const sizeOf = ({ scaleDType }: (typeof weightVariants)[number]) =>
    scaleDType === "i8" ? sizes[0] : scaleDType === "e4m3" ? sizes[3] : undefined;
  const options = [1, 2, 3, 4, 5, 6, 7, 8].flatMap((bits) =>
    weightVariants
      .filter(({ levels = false, scaleDType }, i) =>
        scaleDType === "e4m3" ? bits === 4 : (i + bits) % 3 === 0 && (!levels || bits <= 4),
      )
      // Integer scales are those of groups of 32, 8-bit floats of 16.
      .map((variant, i) => ({ bits, ...(sizeOf(variant) ?? sizes[(bits + i) % sizes.length]!), ...variant })),
  );
  return options.flatMap((option, i) => {
    const random = new Random(i);
    const made = Array.from({ length: EXPERTS }, () => randomWeights(random, option));
    // Levels of 7 bits and of 8 are multiplied in other ways, so that sums are rounded otherwise: experts of a layer have the same.
    const weights = made.map((one) => ({ ...one, levels: made[0]!.levels }));
    const negative = { ...weights[3]!, scales: weights[3]!.scales.map((scale) => -scale) };
    if (!negative.superScales) weights[3] = negative;
    const layout = selectLayout(weights[0]!, on);
    const parts = weights.map((matrix) => packWeights(matrix, random.floats(option.n), layout));
    const all = heap(parts.reduce((sum, { length }) => sum + length, 0));
    const opened = parts.map((part, e) => {
      all.set(part, e * part.length);
      return openPacked(all.subarray(e * part.length, (e + 1) * part.length), option);
    });
    const choices = choicesOf(kernels, (m) => selectKernel(kernels, packedQuery(opened[0]!, m), on));
    if (choices.some(({ kernel }) => kernel.target !== target)) return [];
    return {
      ...{ what: `${JSON.stringify(option)} on ${on.name}`, n: option.n, k: option.k },
      matrices: { wholes: [all], choices, of: (expert, m, x, y) => ({ m, x, weights: opened[expert]!, y }) },
    };
  });
}

function floatLayers(on: Cpu): Layer<FloatLinearArgs>[] {
  const [n, k] = [21, 50];
  const random = new Random(9);
  return randomFloatWeights(random, EXPERTS * n * k).map(({ stored: { dtype, data } }, i) => {
    const bias = i === 0 ? random.floats(EXPERTS * n) : null;
    return {
      ...{ what: `${dtype} on ${on.name}`, n, k },
      matrices: {
        wholes: bias ? [data, bias] : [data],
        choices: choicesOf(table.linearFloat, (m) =>
          selectKernel(table.linearFloat, { layout: null, bits: null, m }, on),
        ),
        of: (expert, m, x, y) => ({
          ...{ m, n, k, x, y },
          weights: { dtype, data: data.subarray(expert * n * k, (expert + 1) * n * k) },
          bias: bias?.subarray(expert * n, (expert + 1) * n) ?? null,
        }),
      },
    };
  });
}

/** The layer by expert, and each expert's rows by the linear kernel for as many. */
function expectSameAsAlone<A>(kernel: Kernel<ExpertLinearArgs<A>>, { what, n, k, matrices }: Layer<A>): void {
  const random = new Random(17);
  for (const bench of benchesFor(kernel, benches))
    for (const [rows, isEven] of [
      [1, true],
      [3, false],
      [45, true],
      [140, false],
    ] as const) {
      const topK = 2;
      const places = rows * topK;
      const routing = place(bench, routingOf(random, rows, EXPERTS, topK, isEven));
      const x = place(bench, random.floats(places * k, 2));
      const y = floats(bench, places * n).fill(7);
      run(kernel, { places, experts: EXPERTS, n, k, x, routing, y, matrices }, bench);
      for (let expert = 0; expert < EXPERTS; expert++) {
        const [first, end] = [routing[expert]!, routing[expert + 1]!];
        if (end === first) continue;
        const alone = floats(bench, (end - first) * n);
        const { kernel: linear } = matrices.choices.findLast(({ from }) => end - first >= from)!;
        run(linear, matrices.of(expert, end - first, x.subarray(first * k, end * k), alone), bench);
        expectSame(y.subarray(first * n, end * n), alone, `${what}, ${rows} rows, expert ${expert}`);
      }
    }
}

describeRows(table.expertLinearPacked, cpu, (kernel) => {
  it("is the linear layer of each expert's rows, bit for bit, with activations of 8 bits and floats", () => {
    for (const on of cpusFor(kernel))
      for (const kernels of [table.linearA8, table.linearA8Blocks, table.linearWeightOnly]) {
        const layers = packedLayers(kernels, on, kernel.target);
        expect(layers.length).toBeGreaterThan(8);
        for (const layer of layers) expectSameAsAlone(kernel, layer);
      }
  });
});

describe("matrices whose header is not the first one's", () => {
  const spec = { bits: 4, n: 32, k: 64, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;
  const native = table.expertLinearPacked.filter(
    ({ target, needs }) => target === "native" && needs.every((feature) => cpu.features.has(feature)),
  );
  /** Results of two experts with two rows each, when headers have changed at `at` since the call was made ready. */
  function results(kernel: (typeof native)[number], layoutName: string, expert: number, at: number): Float32Array {
    const layout = layoutNamed(layoutName);
    const part = packWeights(randomWeights(new Random(1), spec), null, layout);
    const all = heap(2 * part.length);
    for (const i of [0, 1]) all.set(part, i * part.length);
    const opened = [0, 1].map((i) => openPacked(all.subarray(i * part.length, (i + 1) * part.length), spec));
    const linear = selectKernel(table.linearA8, packedQuery(opened[0]!, 1), cpusFor(kernel)[0]!);
    const matrices: ExpertMatrices<PackedLinearArgs> = {
      wholes: [all],
      choices: [{ from: 1, kernel: linear }],
      of: (expert, m, x, y) => ({ m, x, weights: opened[expert]!, y }),
    };
    const routing = new Int32Array(routingLength(4, 2, 1));
    routing.set([0, 2, 4]);
    const y = floats(benches[0]!, 4 * spec.n);
    const x = new Random(2).floats(4 * spec.k);
    const args = { places: 4, experts: 2, n: spec.n, k: spec.k, x, routing, y, matrices };
    const scratch = heap(kernel.scratchBytes?.(args, 1) ?? 0);
    const go = kernel.bind(args, scratch, 1);
    all[expert * part.length + at]! ^= 1;
    go();
    return y;
  }

  if (native.length === 0) it.skip("give NaN (skipped: no native kernels here)", () => {});
  // Of panels, but for the mark of scales, the checksums and the codebook; of TorchAO, all eight integers.
  const panels = [...Array(40).keys()].filter((at) => at !== 15 && (at < 28 || at >= 32));
  it.each(
    native.flatMap((kernel) => ["panel16", "panel32", "torchao_universal"].map((layout) => [layout, kernel] as const)),
  )("in %s give NaN", (layout, kernel) => {
    const isNone = (values: Float32Array) => values.every(Number.isNaN);
    for (const at of layout === "torchao_universal" ? Array(32).keys() : panels) {
      const second = results(kernel, layout, 1, at);
      expect(second.subarray(0, 2 * spec.n).every(Number.isFinite), `byte ${at}`).toBe(true);
      expect(isNone(second.subarray(2 * spec.n)), `byte ${at}`).toBe(true);
      expect(isNone(results(kernel, layout, 0, at)), `byte ${at} of the first`).toBe(true);
    }
  });
});

describeRows(table.expertLinearFloat, cpu, (kernel) => {
  it("is the float layer of each expert's rows, bit for bit", () => {
    for (const on of cpusFor(kernel)) for (const layer of floatLayers(on)) expectSameAsAlone(kernel, layer);
  });
});

describe("a routing that is none", () => {
  it.each(table.expertLinearFloat.filter(({ needs }) => needs.every((feature) => cpu.features.has(feature))))(
    "$name gives NaN for places of no expert and reads nothing else",
    (kernel) => {
      const [{ n, k, matrices }] = floatLayers(cpusFor(kernel)[0]!) as [Layer<FloatLinearArgs>];
      const places = 6;
      const routing = new Int32Array(routingLength(3, EXPERTS, 2));
      routing.set([-4, 2, 1, 2 ** 30, -7, 4]);
      const y = floats(benches[0]!, places * n);
      run(
        kernel,
        { places, experts: EXPERTS, n, k, x: new Float32Array(places * k), routing, y, matrices },
        benches[0]!,
      );
      expect(Number.isNaN(y[0])).toBe(false);
      expect(y.length).toBe(places * n);
    },
  );
});
