/**
 * How the arguments of each kernel family become numbers and buffers of a native call. C++ reads them by the names given
 * here: `npm run families` writes these to native/families.h.
 */
import { UnsupportedError } from "../../errors.ts";
import type {
  AttendTextsArgs,
  AttentionArgs,
  ExpertLinearArgs,
  ExpertRowsArgs,
  FloatEmbeddingArgs,
  FloatLinearArgs,
  FloatWeights,
  GatherColumnsArgs,
  LinearRecurrenceArgs,
  PackedEmbeddingArgs,
  PackedLinearArgs,
  RopeAnglesArgs,
  RopeArgs,
  RopeSequenceAttentionArgs,
  RouteArgs,
  SelectArgs,
  SequenceAttentionArgs,
  SharedEmbeddingArgs,
  ShortConvolutionArgs,
  VocabularyMaximaArgs,
  VocabularyWeightsArgs,
} from "../arguments.ts";
import { kvCacheTypes, partOffsets } from "../sequence-table.ts";

/** The arguments of a native call: all numbers, then all buffers, each in the order that its C++ code reads. */
export interface NativeArguments {
  /** Numbers in the order of the family. */
  readonly scalars: readonly number[];
  /** Buffers in the order of the family. */
  readonly buffers: readonly ArrayBufferView[];
}

/** Names of a native call's numbers and of its buffers, in their order. A scratch buffer follows the ones listed. */
export interface ArgumentNames {
  /** Names of the numbers, in their order. */
  readonly scalars: readonly string[];
  /** Names of the buffers, in their order. */
  readonly buffers: readonly string[];
}

const matrix = ["m", "n", "k"] as const;
const rowsOfDim = ["rows", "dim"] as const;
const attentionSizes = ["tokens", "heads", "kvHeads", "headDim", "capacity"] as const;
const sequenceSizes = ["rows", "heads", "kvHeads", "headDim", "pagePositions", "pagesMax", "runsMax"] as const;
const partOffsetNames = ["keyOffset", "valueOffset", "keyScaleOffset", "valueScaleOffset"] as const;
const ruleScalars = ["scale", "window", "softcap"] as const;
const sequenceScalars = [
  ...sequenceSizes,
  ...ruleScalars,
  "cacheType",
  "stores",
  ...partOffsetNames,
  "hasSinks",
] as const;
const stateScalars = ["stateOffset", "runsMax", "slots"] as const;
const stateBuffers = ["runs", "states", "nextStates", "y"] as const;

const routedRows = ["rows", "experts", "topK"] as const;
const expertSizes = ["places", "experts", "n", "k", "partBytes"] as const;
/** Fewest rows of an expert and the kernel from there on, as its place in the addon's table; what is not used is like the last. */
const expertChoices = ["from0", "from1", "from2", "from3", "from4", "from5", "from6", "from7"] as const;
const expertKernels = ["kernel0", "kernel1", "kernel2", "kernel3", "kernel4", "kernel5", "kernel6", "kernel7"] as const;
const expertScalars = [...expertSizes, ...expertChoices, ...expertKernels] as const;
const expertBuffers = ["x", "weights", "routing", "y"] as const;

/** What families of kernels are called with; several families may take the same. */
export const argumentNames = {
  packedLinear: { scalars: [...matrix, "groupSize"], buffers: ["x", "weights", "y"] },
  floatLinear: { scalars: [...matrix, "weightType", "hasBias"], buffers: ["x", "weights", "bias", "y"] },
  ropeAngles: { scalars: ["tokens", "half", "scale", "each"], buffers: ["position", "inverseFrequencies", "angles"] },
  rope: { scalars: ["tokens", "heads", "headDim", "half"], buffers: ["x", "angles", "y"] },
  attention: {
    scalars: [...attentionSizes, ...ruleScalars, "stores"],
    buffers: ["q", "k", "v", "keyCache", "valueCache", "position", "y"],
  },
  updateAndAttend: { scalars: sequenceScalars, buffers: ["q", "k", "v", "runs", "pages", "sinks", "y"] },
  ropeUpdateAndAttend: {
    scalars: [...sequenceScalars, "half"],
    buffers: ["qkv", "angles", "runs", "pages", "sinks", "y"],
  },
  shortConvolution: {
    scalars: ["rows", "channels", "taps", "silu", "hasBias", ...stateScalars],
    buffers: ["x", "weight", "bias", ...stateBuffers],
  },
  linearRecurrence: {
    scalars: ["rows", "keyHeads", "heads", "keyDim", "valueDim", "scale", "hasBeta", ...stateScalars],
    buffers: ["q", "k", "v", "logDecay", "beta", ...stateBuffers],
  },
  attendTexts: {
    scalars: ["rows", "heads", "kvHeads", "headDim", "texts", "scale", "before", "after"],
    buffers: ["q", "k", "v", "offsets", "y"],
  },
  select: { scalars: ["outer", "stride", "offset", "blockBytes"], buffers: ["x", "y"] },
  gatherColumns: { scalars: [...rowsOfDim, "count", "indexBytes"], buffers: ["x", "columns", "y"] },
  embeddingFloat: {
    scalars: [...rowsOfDim, "weightType", "count", "indexBytes"],
    buffers: ["weights", "indices", "y"],
  },
  embeddingPacked: {
    scalars: ["bits", ...rowsOfDim, "groups", "count", "indexBytes"],
    buffers: ["packed", "scales", "zeros", "indices", "y"],
  },
  embeddingShared: { scalars: ["count", "n", "k", "groupSize", "indexBytes"], buffers: ["weights", "indices", "y"] },
  route: {
    scalars: [...routedRows, "scores", "normalize", "eps", "scale", "hasBias", "hasFactors"],
    buffers: ["logits", "bias", "factors", "routing"],
  },
  expertRows: { scalars: [...routedRows, "dim"], buffers: ["x", "routing", "y"] },
  expertPacked: { scalars: [...expertScalars, "groupSize"], buffers: expertBuffers },
  expertFloat: { scalars: [...expertScalars, "weightType", "hasBias"], buffers: [...expertBuffers, "bias"] },
  vocabularyMaxima: { scalars: ["blocks"], buffers: ["x", "allowed", "maxima"] },
  vocabularyWeights: { scalars: ["blocks"], buffers: ["x", "maxima", "settings", "weights", "sums"] },
  quantizeAffine: {
    scalars: ["n", "k", "groupSize", "bits", "weightType", "mapping", "algorithm", "scaleType", "hasImportance"],
    buffers: ["weights", "qvals", "scales", "superScales", "zeros", "importance", "trials", "levels", "failed"],
  },
  quantizePack: {
    scalars: ["n", "k", "groupSize", "bits", "scaleBytes", "hasE4m3", "hasZeros", "hasLevels", "hasMinima", "hasBias"],
    buffers: ["qvals", "scales", "zeros", "levels", "minima", "superScales", "superMinima", "panels", "negative"],
  },
  measureRead: { scalars: ["bytes", "rounds", "ahead"], buffers: ["data"] },
  measureMacs: { scalars: ["macs", "tiles"], buffers: [] },
} as const satisfies Record<string, ArgumentNames>;

/** The arguments of a native call from values by name. */
export function orderArguments<N extends ArgumentNames>(
  names: N,
  values: Readonly<Record<N["scalars"][number], number> & Record<N["buffers"][number], ArrayBufferView>>,
): NativeArguments {
  const byName: Readonly<Record<string, number | ArrayBufferView>> = values;
  return {
    scalars: names.scalars.map((name) => byName[name] as number),
    buffers: names.buffers.map((name) => byName[name] as ArrayBufferView),
  };
}

const names = argumentNames;

/** TorchAO's headers lack n, k and the group size. */
export function packedLinear({ m, x, weights, y }: PackedLinearArgs): NativeArguments {
  const { n, k, groupSize } = weights.spec;
  return orderArguments(names.packedLinear, { m, n, k, groupSize, x, weights: weights.bytes, y });
}

/** How float weights are stored, as native/half.h numbers it. */
function floatType({ dtype }: FloatWeights): number {
  return ["f32", "f16", "bf16"].indexOf(dtype);
}

const none = new Float32Array(0);

export function floatLinear({ m, n, k, x, weights, bias, y }: FloatLinearArgs): NativeArguments {
  return orderArguments(names.floatLinear, {
    ...{ m, n, k, x, y },
    weights: weights.data,
    weightType: floatType(weights),
    bias: bias ?? none,
    hasBias: bias ? 1 : 0,
  });
}

/** `each` is 1 where each token has a position, 0 where they follow the first. */
export function ropeAngles(args: RopeAnglesArgs): NativeArguments {
  const each = args.position.length > 1 ? 1 : 0;
  return orderArguments(names.ropeAngles, { ...args, half: args.inverseFrequencies.length, each });
}

export function rope(args: RopeArgs): NativeArguments {
  return orderArguments(names.rope, args);
}

export function route(args: RouteArgs): NativeArguments {
  const { bias, factors } = args;
  return orderArguments(names.route, {
    ...args,
    normalize: args.normalize ? 1 : 0,
    hasBias: bias ? 1 : 0,
    hasFactors: factors ? 1 : 0,
    bias: bias ?? none,
    factors: factors ?? none,
  });
}

export function expertRows(args: ExpertRowsArgs): NativeArguments {
  return orderArguments(names.expertRows, args);
}

/** The kernels of an expert's rows, which are native, as places in the addon's table. */
function expertChoicesOf<A>({ matrices, x, y }: ExpertLinearArgs<A>): Record<ChoiceName, number> {
  const call = matrices.of(0, 1, x, y);
  const places = matrices.choices.map(({ from, kernel }) => {
    const encoded = kernel.encode?.(call, new Uint8Array(0));
    if (encoded?.target !== "native") throw new UnsupportedError(`${kernel.name} cannot be called by native code`);
    return { from, kernel: encoded.kernel };
  });
  if (places.length > expertChoices.length)
    throw new UnsupportedError(
      `expected at most ${expertChoices.length} kernels for rows of experts but found ${places.length}`,
    );
  const last = { ...places.at(-1)!, from: 2 ** 32 - 1 };
  return Object.fromEntries([
    ...expertChoices.map((name, i) => [name, (places[i] ?? last).from]),
    ...expertKernels.map((name, i) => [name, (places[i] ?? last).kernel]),
  ]) as Record<ChoiceName, number>;
}

type ChoiceName = (typeof expertChoices)[number] | (typeof expertKernels)[number];

/** `partBytes`: from the matrix of one expert to that of the next. */
export function expertPacked(args: ExpertLinearArgs<PackedLinearArgs>): NativeArguments {
  const { spec, bytes } = args.matrices.of(0, 1, args.x, args.y).weights;
  return orderArguments(names.expertPacked, {
    ...args,
    ...expertChoicesOf(args),
    groupSize: spec.groupSize,
    partBytes: bytes.byteLength,
    weights: bytes,
  });
}

export function expertFloat(args: ExpertLinearArgs<FloatLinearArgs>): NativeArguments {
  const { weights, bias } = args.matrices.of(0, 1, args.x, args.y);
  return orderArguments(names.expertFloat, {
    ...args,
    ...expertChoicesOf(args),
    weightType: floatType(weights),
    partBytes: weights.data.byteLength,
    weights: weights.data,
    bias: bias ?? none,
    hasBias: bias ? 1 : 0,
  });
}

/** Without k and v nothing is stored. */
export function attention(args: AttentionArgs): NativeArguments {
  const { k, v } = args;
  return orderArguments(names.attention, { ...args, k: k ?? none, v: v ?? none, stores: k && v ? 1 : 0 });
}

/** Offsets are bytes from the address of a page. Cache types are 0 f32, 1 f16, 2 int8. Without k and v nothing is stored. */
export function updateAndAttend(args: SequenceAttentionArgs): NativeArguments {
  const { k, v } = args;
  const stored = { k: k ?? none, v: v ?? none, stores: k && v ? 1 : 0 };
  return orderArguments(names.updateAndAttend, { ...args, ...sequenceArguments(args), ...stored });
}

export function ropeUpdateAndAttend(args: RopeSequenceAttentionArgs): NativeArguments {
  return orderArguments(names.ropeUpdateAndAttend, { ...args, ...sequenceArguments(args), stores: 1 });
}

function sequenceArguments({
  table,
  pages: { cache, offset },
  sinks,
}: Pick<SequenceAttentionArgs, "table" | "pages" | "sinks">) {
  const { pagePositions, pagesMax, pages } = cache;
  const { keys, values, keyScales, valueScales } = partOffsets(cache);
  return {
    ...{ pagePositions, pagesMax, pages, runs: table.runs, runsMax: table.runsMax },
    cacheType: kvCacheTypes.indexOf(cache.type),
    keyOffset: offset + keys,
    valueOffset: offset + values,
    keyScaleOffset: offset + keyScales,
    valueScaleOffset: offset + valueScales,
    sinks: sinks ?? none,
    hasSinks: sinks ? 1 : 0,
  };
}

/** The part of each state that a call owns begins `stateOffset` bytes from the state's address. */
function stateArguments({ table, state }: Pick<ShortConvolutionArgs, "table" | "state">) {
  const { runs, runsMax, slots, states, nextStates } = table;
  return { stateOffset: state.offset, runs, runsMax, slots, states, nextStates };
}

export function shortConvolution(args: ShortConvolutionArgs): NativeArguments {
  return orderArguments(names.shortConvolution, {
    ...args,
    ...stateArguments(args),
    silu: args.silu ? 1 : 0,
    bias: args.bias ?? none,
    hasBias: args.bias ? 1 : 0,
  });
}

export function linearRecurrence(args: LinearRecurrenceArgs): NativeArguments {
  const hasBeta = args.beta ? 1 : 0;
  const given = { ...args, ...stateArguments(args), beta: args.beta ?? none, hasBeta };
  return orderArguments(names.linearRecurrence, given);
}

export function attendTexts(args: AttendTextsArgs): NativeArguments {
  return orderArguments(names.attendTexts, { ...args, texts: args.offsets.length - 1 });
}

export function select(args: SelectArgs): NativeArguments {
  return orderArguments(names.select, args);
}

export function gatherColumns(args: GatherColumnsArgs): NativeArguments {
  return orderArguments(names.gatherColumns, { ...args, ...indexSizes(args.columns) });
}

export function embeddingFloat({ rows, dim, weights, indices, y }: FloatEmbeddingArgs): NativeArguments {
  return orderArguments(names.embeddingFloat, {
    ...{ rows, dim, indices, y },
    ...indexSizes(indices),
    weights: weights.data,
    weightType: floatType(weights),
  });
}

export function embeddingPacked(args: PackedEmbeddingArgs): NativeArguments {
  const groups = args.scales.length / args.rows;
  return orderArguments(names.embeddingPacked, { ...args, ...indexSizes(args.indices), groups });
}

export function embeddingShared({ weights, indices, y }: SharedEmbeddingArgs): NativeArguments {
  const { n, k, groupSize } = weights.spec;
  const sizes = { n, k, groupSize, ...indexSizes(indices) };
  return orderArguments(names.embeddingShared, { ...sizes, weights: weights.bytes, indices, y });
}

export function vocabularyMaxima(args: VocabularyMaximaArgs): NativeArguments {
  return orderArguments(names.vocabularyMaxima, { ...args, blocks: args.maxima.length });
}

export function vocabularyWeights(args: VocabularyWeightsArgs): NativeArguments {
  return orderArguments(names.vocabularyWeights, { ...args, blocks: args.maxima.length });
}

function indexSizes(indices: PackedEmbeddingArgs["indices"]) {
  return { count: indices.length, indexBytes: indices.BYTES_PER_ELEMENT };
}
