/**
 * Operators of mixtures of experts: a router chooses experts for each token, tokens are sorted by expert, linear layers
 * multiply each expert's tokens with its matrix, and the results are summed with the router's weights.
 */

import type { Cpu, Kernel, PackedWeights } from "../kernels/contract.ts";
import {
  type ExpertLinearArgs,
  type ExpertMatrices,
  type ExpertRowsArgs,
  type RouteArgs,
  routerScores,
  type ScatterExpertsArgs,
} from "../kernels/families/experts/fields.ts";
import { routingLength } from "../kernels/families/experts/routing.ts";
import {
  combineExperts,
  expertLinearFloat,
  expertLinearPacked,
  expertRows,
  linearA8,
  linearA8Blocks,
  linearFloat,
  linearWeightOnly,
  route,
  scatterExperts,
} from "../kernels/families/index.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../kernels/families/linear/fields.ts";
import { HEADER_BYTES } from "../kernels/layout/header.ts";
import { formOf, openPacked } from "../kernels/layout/packed.ts";
import { packedQuery, selectKernel } from "../kernels/select.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { checkOverlaps } from "./call-memory.ts";
import { packedShape, rowCount } from "./linear.ts";
import { defineOperator, type Operator, touchedBytes } from "./operator.ts";
import { checkStack } from "./packed-stack.ts";

/** Most experts, far beyond any model's. */
const EXPERTS_MAX = 2 ** 16;
/** Most experts * topK^2, since choosing each expert compares it with those chosen before. */
const CHOICES_MAX = 2 ** 28;

/** ShapeError for a topK larger than the number of experts, or than the limit for so many. */
function checkTopK(args: Arguments<TensorSpec>, topK: number, experts: number): void {
  if (topK > experts) args.fail("top_k", `expected at most ${experts}, the experts, but found ${topK}`);
  const most = Math.floor(Math.sqrt(CHOICES_MAX / experts));
  if (topK > most) args.fail("top_k", `expected at most ${most} of ${experts} experts but found ${topK}`);
}

/** Number of experts, and of experts for each token. */
function expertCounts(args: Arguments<TensorSpec>): { readonly experts: number; readonly topK: number } {
  const experts = args.integer("experts", 1);
  const topK = args.integer("top_k", 1);
  if (experts > EXPERTS_MAX) args.fail("experts", `expected at most ${EXPERTS_MAX} but found ${experts}`);
  checkTopK(args, topK, experts);
  return { experts, topK };
}

/** ShapeError for indices of another number. */
function checkIndices(args: Arguments<TensorSpec>, name: string, expected: number): void {
  const { shape } = args.tensor(name, "i32");
  if (shape.length !== 1 || shape[0] !== expected) args.fail(name, `expected shape [${expected}] but found [${shape}]`);
}

/** ShapeError for a routing of another number of tokens or experts. */
function checkRouting(args: Arguments<TensorSpec>, rows: number): void {
  const { experts, topK } = expertCounts(args);
  checkIndices(args, "routing", routingLength(rows, experts, topK));
}

function floatsOrNull(args: Arguments<Tensor>, name: string): Float32Array | null {
  return (args.optionalTensor(name)?.data as Float32Array | undefined) ?? null;
}

/**
 * Routing: the `top_k` experts of each token of logits [1, T, experts], best first, by softmax or sigmoid scores. An
 * expert's weight is its score, divided by the sum of the chosen scores (plus eps) with `normalize`, times `scale`, times
 * the expert's factor [experts]. bias [experts] is added to scores for choosing only (DeepSeek-AI 2024). out: int32, which
 * token goes where, for the operators below.
 */
const routeOperator = defineOperator<RouteArgs>({
  schema:
    'lowbit::route.out(Tensor logits, Tensor? bias, Tensor? factors, int top_k, str scores="softmax", bool normalize=True, float eps=0, float scale=1, *, Tensor(a!) out) -> Tensor(a!)',
  kernels: route,
  shape(args) {
    const { shape } = args.tensor("logits", "f32");
    const [one, rows, experts] = shape;
    if (shape.length !== 3 || one !== 1 || experts! < 1 || experts! > EXPERTS_MAX)
      args.fail("logits", `expected shape [1, T, 1 to ${EXPERTS_MAX}] but found [${shape}]`);
    const topK = args.integer("top_k", 1);
    checkTopK(args, topK, experts!);
    for (const name of ["bias", "factors"]) {
      const found = args.optionalTensor(name, "f32");
      if (found && found.shape.join() !== `${experts}`)
        args.fail(name, `expected shape [${experts}] but found [${found.shape}]`);
    }
    const scores = args.string("scores");
    if (!(routerScores as readonly string[]).includes(scores))
      args.fail("scores", `expected ${routerScores.join(" or ")} but found ${scores}`);
    return { dtype: "i32", shape: [routingLength(rows!, experts!, topK)] };
  },
  multiplications: (args) => elementCount(args.tensor("logits").shape) * args.integer("top_k") ** 2,
  prepare(args) {
    const [, rows, experts] = args.tensor("logits").shape;
    return {
      rows: rows!,
      experts: experts!,
      topK: args.number("top_k"),
      scores: args.string("scores") as RouteArgs["scores"],
      normalize: args.boolean("normalize"),
      eps: args.number("eps"),
      scale: args.number("scale"),
      logits: args.tensor("logits").data as Float32Array,
      bias: floatsOrNull(args, "bias"),
      factors: floatsOrNull(args, "factors"),
      routing: args.tensor("out").data as Int32Array,
    };
  },
});

/** Arguments of the calls that sort tokens by expert, sort them back or scatter their results. */
function rowsArgs(args: Arguments<Tensor>, rows: number): ExpertRowsArgs {
  return {
    rows,
    ...expertCounts(args),
    dim: args.tensor("x").shape.at(-1)!,
    x: args.tensor("x").data as Float32Array,
    routing: args.tensor("routing").data as Int32Array,
    y: args.tensor("out").data as Float32Array,
  };
}

/** Sizes of x [1, rows, dim]. */
function rowsOf(args: Arguments<TensorSpec>): readonly [number, number] {
  const { shape } = args.tensor("x", "f32");
  if (shape.length !== 3 || shape[0] !== 1 || shape[2] === 0)
    args.fail("x", `expected shape [1, T, n] but found [${shape}]`);
  return [shape[1]!, shape[2]!];
}

/** Sizes of x [1, rows * top_k, dim], sorted by expert. */
function combinedSizes(args: Arguments<TensorSpec>): { readonly rows: number; readonly dim: number } {
  const [places, dim] = rowsOf(args);
  const topK = args.integer("top_k", 1);
  if (places % topK !== 0) args.fail("x", `expected rows that are a multiple of ${topK} but found ${places}`);
  checkRouting(args, places / topK);
  return { rows: places / topK, dim };
}

/** Tokens of x [1, T, n] sorted by expert, each once for each of its experts → [1, T * top_k, n]. */
const expertRowsOperator = defineOperator<ExpertRowsArgs>({
  schema: "lowbit::expert_rows.out(Tensor x, Tensor routing, int experts, int top_k, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: expertRows,
  shape(args) {
    const [rows, dim] = rowsOf(args);
    checkRouting(args, rows);
    return { dtype: "f32", shape: [1, rows * args.integer("top_k"), dim] };
  },
  prepare: (args) => rowsArgs(args, args.tensor("x").shape[1]!),
});

/**
 * out [1, T, n]: for each token, the sum of its experts' results in x [1, T * top_k, n], times their weights, best first.
 */
const combineExpertsOperator = defineOperator<ExpertRowsArgs>({
  schema:
    "lowbit::combine_experts.out(Tensor x, Tensor routing, int experts, int top_k, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: combineExperts,
  shape(args) {
    const { rows, dim } = combinedSizes(args);
    return { dtype: "f32", shape: [1, rows, dim] };
  },
  prepare: (args) => rowsArgs(args, args.tensor("out").shape[1]!),
});

/**
 * out [1, T, size]: for each token, its experts' results in x [1, T * top_k, n] at the columns [experts * n] of these, and one
 * less than the least of them everywhere else, as transformers' Gemma4AssistantMaskedEmbedder has it.
 */
const scatterExpertsOperator = defineOperator<ScatterExpertsArgs>({
  schema:
    "lowbit::scatter_experts.out(Tensor x, Tensor routing, Tensor columns, int experts, int top_k, int size, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: scatterExperts,
  shape(args) {
    const { rows, dim } = combinedSizes(args);
    checkIndices(args, "columns", args.integer("experts") * dim);
    return { dtype: "f32", shape: [1, rows, args.integer("size", 1)] };
  },
  prepare: (args) => ({
    ...rowsArgs(args, args.tensor("out").shape[1]!),
    columns: args.tensor("columns").data as Int32Array,
    size: args.number("size"),
  }),
});

/** Checks what the experts' linear layers have in common: x [1, T * top_k, k] and its routing. */
function expertLinearShape(args: Arguments<TensorSpec>, n: number, k: number): TensorSpec {
  const [places, columns] = rowsOf(args);
  const { topK } = expertCounts(args);
  if (columns !== k || places % topK !== 0)
    args.fail("x", `expected shape [1, a multiple of ${topK}, ${k}] but found [1, ${places}, ${columns}]`);
  checkRouting(args, places / topK);
  return { dtype: "f32", shape: [1, places, n] };
}

/** Bytes that a call moves; of the matrices, those of the experts that are used. */
function expertBytes(args: Arguments<Tensor>, weights: string): number {
  const { experts } = expertCounts(args);
  const routing = args.tensor("routing").data as Int32Array;
  let used = 0;
  for (let expert = 0; expert < experts; expert++) if (routing[expert + 1]! > routing[expert]!) used++;
  return touchedBytes(args, [weights], used / experts);
}

/**
 * Opened matrices of a linear layer and the kernels for any number of tokens, by its weights and CPU: they are the same for
 * inputs of all sizes while everything that they were made by (`by`) is.
 */
class KnownMatrices<A> {
  readonly #known = new WeakMap<Tensor, WeakMap<Cpu, { by: readonly unknown[]; matrices: ExpertMatrices<A> }>>();

  of(weights: Tensor, cpu: Cpu, by: readonly unknown[], make: () => ExpertMatrices<A>): ExpertMatrices<A> {
    const known = this.#known.get(weights) ?? new WeakMap();
    this.#known.set(weights, known);
    const found = known.get(cpu);
    if (found?.by.every((value: unknown, i: number) => value === by[i])) return found.matrices;
    const matrices = make();
    known.set(cpu, { by, matrices });
    return matrices;
  }
}

/** The kernel for one expert's tokens, by their number: from each `from` on, another kernel may serve. */
function choicesOf<A>(kernels: readonly Kernel<A>[], select: (m: number) => Kernel<A>): ExpertMatrices<A>["choices"] {
  const steps = new Set(kernels.flatMap(({ mStep, groups = [] }) => [mStep, ...groups.map(({ m }) => m)]));
  const choices: { from: number; kernel: Kernel<A> }[] = [];
  for (const from of [...steps.add(1)].sort((a, b) => a - b)) {
    const kernel = select(from);
    if (choices.at(-1)?.kernel !== kernel) choices.push({ from, kernel });
  }
  return choices;
}

const packedMatrices = new Map<readonly Kernel<PackedLinearArgs>[], KnownMatrices<PackedLinearArgs>>();

/** The packed weights of the experts, one after the other; the first header tells the format of all. */
function openExperts(
  args: Arguments<Tensor>,
  kernels: readonly Kernel<PackedLinearArgs>[],
  cpu: Cpu,
): ExpertMatrices<PackedLinearArgs> {
  const weights = args.tensor("packed_weights");
  const { experts } = expertCounts(args);
  const known = packedMatrices.get(kernels) ?? new KnownMatrices<PackedLinearArgs>();
  packedMatrices.set(kernels, known);
  const shape = packedShape(args);
  const bytes = weights.data as Uint8Array;
  const by = [experts, shape.n, shape.k, shape.groupSize, bytes.subarray(0, HEADER_BYTES).join()];
  return known.of(weights, cpu, by, () => {
    const partBytes = bytes.length / experts;
    if (!Number.isInteger(partBytes) || partBytes < HEADER_BYTES)
      args.fail("packed_weights", `expected bytes of ${experts} equal parts but found ${bytes.length}`);
    const part = (expert: number) => bytes.subarray(expert * partBytes, (expert + 1) * partBytes);
    const first = openPacked(part(0), shape);
    const opened = new Map<number, PackedWeights>([[0, first]]);
    const open = (expert: number) => {
      const found = openPacked(part(expert), shape);
      if (formOf(found) !== formOf(first))
        args.fail("packed_weights", `expert ${expert}: expected ${formOf(first)} but found ${formOf(found)}`);
      return found;
    };
    const weightsOf = (expert: number) => {
      const found = opened.get(expert) ?? open(expert);
      opened.set(expert, found);
      return found;
    };
    return {
      choices: choicesOf(kernels, (m) => selectKernel(kernels, packedQuery(first, m), cpu)),
      wholes: [bytes],
      of: (expert, m, x, y) => ({ m, x, weights: weightsOf(expert), y }),
    };
  });
}

/**
 * The kernels of a target call that target's kernels of linear layers; where another kernel serves the matrices, the
 * reference kernel calls it.
 */
function expertLinearPackedOperator(name: string, kernels: readonly Kernel<PackedLinearArgs>[]): Operator {
  const [best, plain] = [expertLinearPacked, expertLinearPacked.slice(-1)].map((rows) =>
    packedOperator(name, kernels, rows),
  ) as [Operator, Operator];
  const targetOf = (cpu: Cpu) => selectKernel(expertLinearPacked, { layout: null, bits: null, m: 1 }, cpu).target;
  const isOwn = (args: Arguments<Tensor>, cpu: Cpu) =>
    openExperts(args, kernels, cpu).choices.every(({ kernel }) => kernel.target === targetOf(cpu));
  return {
    ...best,
    resolve(args, cpu) {
      checkOverlaps(args, { inPlace: [], readFirst: [] });
      return (isOwn(args, cpu) ? best : plain).resolve(args, cpu);
    },
  };
}

function packedOperator(
  name: string,
  kernels: readonly Kernel<PackedLinearArgs>[],
  rows: readonly Kernel<ExpertLinearArgs<PackedLinearArgs>>[],
): Operator {
  return defineOperator<ExpertLinearArgs<PackedLinearArgs>>({
    schema: `${name}.out(Tensor x, Tensor packed_weights, Tensor routing, int experts, int top_k, int group_size, int n, int k, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: rows,
    shape(args) {
      args.tensor("packed_weights", "u8");
      const { n, k } = packedShape(args);
      return expertLinearShape(args, n, k);
    },
    multiplications: (args) => elementCount(args.tensor("x").shape) * packedShape(args).n,
    bytes: (args) => expertBytes(args, "packed_weights"),
    async checkConstants(args, constantOf) {
      const weights = constantOf("packed_weights");
      const stack = { count: expertCounts(args).experts, shape: packedShape(args) };
      if (weights) await checkStack(args, "packed_weights", weights, stack);
    },
    prepare(args, cpu) {
      const { n, k } = packedShape(args);
      return {
        places: rowCount(args.tensor("x").shape),
        experts: args.number("experts"),
        n,
        k,
        x: args.tensor("x").data as Float32Array,
        routing: args.tensor("routing").data as Int32Array,
        y: args.tensor("out").data as Float32Array,
        matrices: openExperts(args, kernels, cpu),
      };
    },
  });
}

const floatMatrices = new KnownMatrices<FloatLinearArgs>();

/**
 * y [1, T * top_k, n] = x W^T + bias, with the float weights [experts, n, k] and biases [experts, n] of each row's expert.
 */
const expertLinearFloatOperator = defineOperator<ExpertLinearArgs<FloatLinearArgs>>({
  schema:
    "lowbit::expert_linear.out(Tensor x, Tensor weight, Tensor? bias, Tensor routing, int experts, int top_k, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: expertLinearFloat,
  shape(args) {
    const { shape } = args.tensor("weight", "f32", "f16", "bf16");
    const [experts, n, k] = shape;
    if (shape.length !== 3 || experts !== args.integer("experts", 1))
      args.fail("weight", `expected shape [${args.integer("experts")}, n, k] but found [${shape}]`);
    const bias = args.optionalTensor("bias", "f32");
    if (bias && bias.shape.join() !== [experts, n].join())
      args.fail("bias", `expected shape [${experts}, ${n}] but found [${bias.shape}]`);
    return expertLinearShape(args, n!, k!);
  },
  multiplications: (args) => elementCount(args.tensor("x").shape) * args.tensor("weight").shape[1]!,
  bytes: (args) => expertBytes(args, "weight"),
  prepare(args, cpu) {
    const weight = args.tensor("weight");
    const [experts, n, k] = weight.shape as [number, number, number];
    const biases = args.optionalTensor("bias");
    const bias = (biases?.data as Float32Array | undefined) ?? null;
    const data = weight.data as Float32Array;
    const matrices = floatMatrices.of(weight, cpu, [biases], () => ({
      choices: choicesOf(linearFloat, (m) => selectKernel(linearFloat, { layout: null, bits: null, m }, cpu)),
      wholes: bias ? [data, bias] : [data],
      of: (expert, m, x, y) => ({
        ...{ m, n, k, x, y },
        weights: { dtype: weight.dtype, data: data.subarray(expert * n * k, (expert + 1) * n * k) },
        bias: bias?.subarray(expert * n, (expert + 1) * n) ?? null,
      }),
    }));
    return {
      ...{ experts, n, k, matrices },
      places: rowCount(args.tensor("x").shape),
      x: args.tensor("x").data as Float32Array,
      routing: args.tensor("routing").data as Int32Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

export const expertOperators: readonly Operator[] = [
  routeOperator,
  expertRowsOperator,
  combineExpertsOperator,
  scatterExpertsOperator,
  // With x quantized to int8 by token (as TorchAO's linear operators do), by blocks of 32 values, or not at all.
  expertLinearPackedOperator("lowbit::expert_linear_8bit_act", linearA8),
  expertLinearPackedOperator("lowbit::expert_linear_8bit_block_act", linearA8Blocks),
  expertLinearPackedOperator("lowbit::expert_linear_weight_only", linearWeightOnly),
  expertLinearFloatOperator,
];
