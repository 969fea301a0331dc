import { bytesOf } from "../../tensor.ts";
import type { AttentionArgs, PackedLinearArgs, SequenceAttentionArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { packEmbedding } from "../layout/torchao-embedding.ts";
import { attentionReference, updateAndAttendReference } from "../reference/attention.ts";
import * as plain from "../reference/elementwise.ts";
import * as embeddings from "../reference/embedding.ts";
import * as joined from "../reference/fused.ts";
import { geluReference, geluTanhReference } from "../reference/gelu.ts";
import {
  linearA8BlocksReference,
  linearA8Reference,
  linearFloatReference,
  linearWeightOnlyReference,
} from "../reference/linear.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "../reference/recurrent.ts";
import { attendTextsReference, layerNormReference } from "../reference/texts.ts";
import { rmsNormReference, ropeAnglesReference, ropeReference } from "../reference/transformer.ts";
import type { PagedCache, SequenceTable } from "../sequence-table.ts";
import * as attention from "./attention/attention.ts";
import { ropeAnglesWasm, ropeWasm } from "./attention/rope.ts";
import * as elementwise from "./elementwise.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./embedding.ts";
import { embeddingPackedWasm } from "./embedding-packed.ts";
import { expertCalls } from "./experts/sample-calls.ts";
import * as fused from "./fused.ts";
import { gatherColumnsWasm } from "./gather-columns.ts";
import { geluTanhWasm, geluWasm } from "./gelu.ts";
import { layerNormWasm } from "./layer-norm.ts";
import { linearFloatWasm } from "./linear/float.ts";
import { linearA8BlocksWasm, linearA8Wasm } from "./linear/linear.ts";
import { linearWeightOnlyWasm } from "./linear/weight-only.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./recurrent/linear-recurrence.ts";
import { shortConvolutionWasm } from "./recurrent/short-convolution.ts";
import { argmaxWasm, groupSumsWasm, rmsNormWasm, scaleRowsWasm, softmaxWasm, softplusWasm } from "./rows.ts";
import { callOf, floats, logicalWeights, packed, type SampleCall } from "./sample-call.ts";
import { attendTextsWasm } from "./texts.ts";

const M = 7;
const DIM = 64;
const ROWS = 32;
const WIDTHS = [2, 3, 4, 8];

const indices = () => BigInt64Array.of(3n, 0n, 31n);

/** One row of activations where a row serves it, and more than the kernels of many take at a time. */
function linearCalls(kernels: readonly Kernel<PackedLinearArgs>[], reference: Kernel<PackedLinearArgs>): SampleCall[] {
  const [n, k] = [64, 512];
  return kernels.flatMap((kernel) =>
    WIDTHS.flatMap((bits) =>
      [1, M]
        .filter((m) => m >= kernel.mStep)
        .map((m) => {
          const weights = packed(n, k, bits, kernel.layouts![0]!);
          const make = () => ({ m, x: floats(m * k), weights, y: new Float32Array(m * n) });
          return callOf(kernel, reference, make, ({ y }) => y, `${bits} bits, ${m} rows`);
        }),
    ),
  );
}

const HEADS = 4;
const KV_HEADS = 2;
const CAPACITY = 48;
/** Small floats, or bit patterns of halves near 0.5. */
const caches = {
  f32: (length: number) => floats(length, 5),
  f16: (length: number) => Uint16Array.from({ length }, (_, i) => 0x3800 + ((i * 7919) % 512)),
};

/** What all forms of attention have, of `tokens` rows. */
const attentionArgs = (tokens: number) => ({
  ...{ heads: HEADS, kvHeads: KV_HEADS, headDim: DIM, scale: DIM ** -0.5, window: 0, softcap: 0 },
  y: new Float32Array(tokens * HEADS * DIM),
});

const PAGE_POSITIONS = 16;

/** One sequence whose new tokens come after 20, in pages of keys and values. */
function sequence(rows: number, type: keyof typeof caches): Pick<SequenceAttentionArgs, "table" | "pages"> {
  const pages = Array.from({ length: CAPACITY / PAGE_POSITIONS }, () =>
    bytesOf(caches[type](2 * PAGE_POSITIONS * KV_HEADS * DIM)),
  );
  const cache: PagedCache = {
    ...{ type, kvHeads: KV_HEADS, headDim: DIM, window: 0, pagePositions: PAGE_POSITIONS, pagesMax: pages.length },
    pages: new BigUint64Array(pages.length),
    page: (_, index) => pages[index]!,
  };
  const layerPages = { cache, offset: 0 };
  return { table: { ...tableOfRun(rows, 0), layerPages: () => layerPages }, pages: layerPages };
}

/** A run of rows from position 20 on, with a state. */
function tableOfRun(rows: number, stateElements: number): SequenceTable {
  const state = { now: bytesOf(floats(stateElements, 8)), next: new Uint8Array(4 * stateElements) };
  return {
    ...{ handle: new Int32Array(1), runs: Int32Array.of(1, 0, rows, 20, 0), runsMax: 1, slots: 1 },
    ...{ states: new BigUint64Array(1), nextStates: new BigUint64Array(1) },
    state: () => state,
    layerPages: () => undefined,
    statePart: () => undefined,
  };
}

/** Sums of short convolutions, and recurrences whose last columns fill no vector. */
function recurrentCalls(): SampleCall[] {
  const stateOf = (rows: number, elements: number) => ({
    table: tableOfRun(rows, elements),
    state: { offset: 0, byteLength: 4 * elements },
  });
  const convolution = (silu: boolean) => () => ({
    ...{ rows: M, channels: DIM + 3, taps: 4, silu, ...stateOf(M, 3 * (DIM + 3)) },
    ...{ x: floats(M * (DIM + 3)), weight: floats(4 * (DIM + 3), 2), bias: silu ? floats(DIM + 3, 3) : null },
    y: new Float32Array(M * (DIM + 3)),
  });
  const [keyHeads, heads, keyDim, valueDim] = [1, 2, 8, 21];
  const recurrence = (beta: Float32Array | null) => () => ({
    ...{ rows: M, keyHeads, heads, keyDim, valueDim, scale: 0.5, ...stateOf(M, heads * keyDim * valueDim) },
    ...{
      q: floats(M * keyDim),
      k: floats(M * keyDim, 2).map((value) => value / 3),
      v: floats(M * heads * valueDim, 3),
    },
    ...{ logDecay: floats(M * heads, 4).map((value) => value - 1), beta },
    y: new Float32Array(M * heads * valueDim),
  });
  return [
    ...[false, true].map((silu) =>
      callOf(
        shortConvolutionWasm,
        shortConvolutionReference,
        convolution(silu),
        ({ y }) => y,
        silu ? "with SiLU and a bias" : "",
      ),
    ),
    ...[linearRecurrenceRelaxedWasm, linearRecurrenceWasm].flatMap((row) =>
      [null, floats(M * heads, 5)].map((beta) =>
        callOf(row, linearRecurrenceReference, recurrence(beta), ({ y }) => y, beta ? "delta rule" : ""),
      ),
    ),
  ];
}

/** One token, and as many as go through attention of several queries at once. */
function attentionCalls(): SampleCall[] {
  const kinds = (["f32", "f16"] as const).flatMap((type) => [1, 17].map((tokens) => ({ type, tokens })));
  return kinds.flatMap(({ type, tokens }) => {
    const what = `${tokens} tokens, cache of ${type}`;
    const kv = tokens * KV_HEADS * DIM;
    const given = () => ({ q: floats(tokens * HEADS * DIM), k: floats(kv, 2), v: floats(kv, 3) });
    const cache = () => floats(CAPACITY * KV_HEADS * DIM, 5);
    const makeAlone = (): AttentionArgs => ({
      ...{ ...attentionArgs(tokens), ...given(), tokens, capacity: CAPACITY },
      ...{ keyCache: cache(), valueCache: cache(), position: BigInt64Array.of(20n) },
    });
    const sinks = tokens > 1 ? floats(HEADS, 5) : null;
    const paged = () => ({ ...attentionArgs(tokens), rows: tokens, sinks, ...sequence(tokens, type) });
    const makePaged = () => ({ ...paged(), ...given() });
    const qkv = () => floats(tokens * (HEADS + 2 * KV_HEADS) * DIM);
    const makeRopePaged = () => ({ ...paged(), qkv: qkv(), angles: floats(tokens * DIM, 4), half: DIM / 2 });
    const alone = type === "f32" ? [attention.attentionRelaxedWasm, attention.attentionWasm] : [];
    return [
      ...[attention.updateAndAttendRelaxedWasm, attention.updateAndAttendWasm].map((row) =>
        callOf(row, updateAndAttendReference, makePaged, ({ y }) => y, what),
      ),
      ...[attention.ropeUpdateAndAttendRelaxedWasm, attention.ropeUpdateAndAttendWasm].map((row) =>
        callOf(row, joined.ropeUpdateAndAttendReference, makeRopePaged, ({ y }) => y, what),
      ),
      ...alone.map((row) => callOf(row, attentionReference, makeAlone, ({ y }) => y, what)),
    ];
  });
}

function elementwiseCalls(): SampleCall[] {
  const length = M * DIM + 3;
  const binary = () => ({ a: floats(length), b: floats(length, 2), alpha: 0.5, y: new Float32Array(length) });
  const unary = () => ({ x: floats(length), value: 3, y: new Float32Array(length) });
  const halves = () => ({ dim: DIM, x: floats(2 * M * DIM), y: new Float32Array(M * DIM) });
  const pairs = [
    [elementwise.addWasm, plain.addReference],
    [elementwise.swigluWasm, plain.swigluReference],
    [elementwise.gegluWasm, plain.gegluReference],
    [elementwise.erfGegluWasm, plain.erfGegluReference],
    [elementwise.quickGegluWasm, plain.quickGegluReference],
    [elementwise.regluWasm, plain.regluReference],
    [elementwise.squaredRegluWasm, plain.squaredRegluReference],
    [elementwise.multiplyWasm, plain.multiplyReference],
    [elementwise.sigmoidGateWasm, plain.sigmoidGateReference],
  ] as const;
  const select = () => ({
    ...{ outer: M, stride: 4 * DIM, offset: 16, blockBytes: 40 },
    ...{ x: new Uint8Array(floats(M * DIM).buffer), y: new Uint8Array(M * 40) },
  });
  return [
    ...pairs.map(([kernel, reference]) => callOf(kernel, reference, binary, ({ y }) => y)),
    callOf(
      elementwise.clampedGateWasm,
      plain.clampedGateReference,
      () => ({ ...binary(), slope: 1.702, limit: 0.7 }),
      ({ y }) => y,
    ),
    callOf(elementwise.scaleWasm, plain.scaleReference, unary, ({ y }) => y),
    callOf(elementwise.sigmoidWasm, plain.sigmoidReference, unary, ({ y }) => y),
    callOf(elementwise.softcapWasm, plain.softcapReference, unary, ({ y }) => y),
    callOf(geluWasm, geluReference, unary, ({ y }) => y),
    callOf(geluTanhWasm, geluTanhReference, unary, ({ y }) => y),
    callOf(elementwise.selectWasm, plain.selectReference, select, ({ y }) => y),
    callOf(fused.swigluHalvesWasm, joined.swigluHalvesReference, halves, ({ y }) => y),
    callOf(fused.gegluHalvesWasm, joined.gegluHalvesReference, halves, ({ y }) => y),
  ];
}

/** Texts of 3 and 14 rows, of heads in variables and of others. */
function textCalls(): SampleCall[] {
  return [16, 22].map((headDim) => {
    const [rows, heads, kvHeads] = [17, 4, 2];
    const kv = rows * kvHeads * headDim;
    const make = () => ({
      ...{ rows, heads, kvHeads, headDim, scale: 0.5, before: 9, after: 4 },
      ...{ q: floats(rows * heads * headDim), k: floats(kv, 2), v: floats(kv, 3) },
      ...{ offsets: BigInt64Array.of(0n, 3n, 17n), y: new Float32Array(rows * heads * headDim) },
    });
    return callOf(attendTextsWasm, attendTextsReference, make, ({ y }) => y, `heads of ${headDim}`);
  });
}

function rowCalls(): SampleCall[] {
  const y = () => new Float32Array(M * DIM);
  const norm = () => ({ dim: DIM, x: floats(M * DIM), weight: floats(DIM, 2), eps: 1e-5, y: y() });
  const rope = () => ({
    ...{ tokens: M, heads: 2, headDim: DIM / 2, half: DIM / 4 },
    ...{ x: floats(M * DIM), angles: floats((M * DIM) / 2, 2), y: y() },
  });
  const angles = () => ({
    ...{ tokens: M, position: BigInt64Array.of(3n), scale: 1 },
    ...{ inverseFrequencies: Float32Array.from(floats(DIM), Math.abs), angles: new Float32Array(M * 2 * DIM) },
  });
  return [
    callOf(rmsNormWasm, rmsNormReference, norm, (args) => args.y),
    ...[null, floats(DIM, 4)].map((bias) =>
      callOf(
        layerNormWasm,
        layerNormReference,
        () => ({ ...norm(), bias }),
        (args) => args.y,
        bias ? "with a bias" : "without a bias",
      ),
    ),
    callOf(
      fused.addRmsNormWasm,
      joined.addRmsNormReference,
      () => ({ ...norm(), addend: floats(M * DIM, 3), alpha: 0.5 }),
      (args) => args.y,
    ),
    callOf(
      softmaxWasm,
      plain.softmaxReference,
      () => ({ dim: DIM, x: floats(M * DIM), y: y() }),
      (args) => args.y,
    ),
    callOf(
      gatherColumnsWasm,
      plain.gatherColumnsReference,
      () => ({
        ...{ rows: M, dim: DIM, x: floats(M * DIM), y: y() },
        columns: Int32Array.from({ length: DIM }, (_, i) => (7 * i) % DIM),
      }),
      (args) => args.y,
    ),
    callOf(
      groupSumsWasm,
      plain.groupSumsReference,
      () => ({ rows: M, k: DIM, groupSize: 8, x: floats(M * DIM), y: new Float32Array((M * DIM) / 8) }),
      (args) => args.y,
    ),
    callOf(
      softplusWasm,
      plain.softplusReference,
      () => ({ dim: DIM, x: floats(M * DIM), bias: floats(DIM, 2), factors: floats(DIM, 3), y: y() }),
      (args) => args.y,
    ),
    callOf(
      scaleRowsWasm,
      plain.scaleRowsReference,
      () => ({ dim: DIM, x: floats(M * DIM), factors: floats(M, 2), y: y() }),
      (args) => args.y,
    ),
    callOf(
      argmaxWasm,
      plain.argmaxReference,
      () => ({ dim: DIM, x: floats(M * DIM), y: new BigInt64Array(M) }),
      (args) => args.y,
    ),
    callOf(ropeWasm, ropeReference, rope, (args) => args.y),
    callOf(ropeAnglesWasm, ropeAnglesReference, angles, (args) => args.angles),
  ];
}

function embeddingCalls(): SampleCall[] {
  const y = () => new Float32Array(3 * DIM);
  const weights = { dtype: "f32", data: floats(ROWS * DIM) } as const;
  const float = () => ({ rows: ROWS, dim: DIM, weights, indices: indices(), y: y() });
  const ofWidth = (bits: number) => {
    const what = `${bits} bits`;
    const shared = packed(ROWS, DIM, bits, embeddingSharedWasm.layouts![0]!);
    const { qvals, scales } = logicalWeights(ROWS, DIM, bits);
    const table = packEmbedding(qvals, { bits, rows: ROWS, dim: DIM });
    const plainTable = () => ({
      ...{ bits, rows: ROWS, dim: DIM, packed: table, scales, zeros: new Int8Array(scales.length) },
      ...{ indices: indices(), y: y() },
    });
    const make = () => ({ weights: shared, indices: indices(), y: y() });
    return [
      callOf(embeddingSharedWasm, embeddings.embeddingSharedReference, make, (args) => args.y, what),
      callOf(embeddingPackedWasm, embeddings.embeddingPackedReference, plainTable, (args) => args.y, what),
    ];
  };
  return [
    callOf(embeddingFloatWasm, embeddings.embeddingFloatReference, float, (args) => args.y),
    ...WIDTHS.flatMap(ofWidth),
  ];
}

function floatLinearCalls(): SampleCall[] {
  const [n, k] = [ROWS, 2 * DIM];
  const make = () => ({
    ...{ m: M, n, k, x: floats(M * k), weights: { dtype: "f32", data: floats(n * k, 2) } as const },
    ...{ bias: null, y: new Float32Array(M * n) },
  });
  return linearFloatWasm.map((kernel) => callOf(kernel, linearFloatReference, make, ({ y }) => y));
}

/** Calls of all rows. */
export function sampleCalls(): SampleCall[] {
  return [
    ...linearCalls(linearA8Wasm, linearA8Reference),
    ...linearCalls(linearA8BlocksWasm, linearA8BlocksReference),
    ...linearCalls(linearWeightOnlyWasm, linearWeightOnlyReference),
    ...floatLinearCalls(),
    ...embeddingCalls(),
    ...attentionCalls(),
    ...textCalls(),
    ...recurrentCalls(),
    ...rowCalls(),
    ...elementwiseCalls(),
    ...expertCalls(),
  ];
}
