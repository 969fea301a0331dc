import { bytesOf } from "../../tensor.ts";
import type { AttentionArgs, PackedLinearArgs, SequenceAttentionArgs } from "../arguments.ts";
import { argumentsFor, type Cases, floats, writtenBy } from "../cases.ts";
import type { Kernel } from "../contract.ts";
import { packEmbedding } from "../layout/torchao-embedding.ts";
import type { PagedCache, SequenceTable } from "../sequence-table.ts";
import { attentionReference, updateAndAttendReference } from "./attention/reference.ts";
import * as joined from "./attention/rope-attention-reference.ts";
import { ropeAnglesReference, ropeReference } from "./attention/rope-reference.ts";
import { attendTextsReference } from "./attention/texts-reference.ts";
import * as attention from "./attention/wasm/attention.ts";
import { ropeAnglesWasm, ropeWasm } from "./attention/wasm/rope.ts";
import { attendTextsWasm } from "./attention/wasm/texts.ts";
import * as cases from "./cases.ts";
import { gatherColumnsReference, selectReference } from "./copy/reference.ts";
import { gatherColumnsWasm } from "./copy/wasm-gather-columns.ts";
import { selectWasm } from "./copy/wasm-select.ts";
import * as embeddings from "./embedding/reference.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./embedding/wasm/embedding.ts";
import { embeddingPackedWasm } from "./embedding/wasm/embedding-packed.ts";
import { expertCalls } from "./experts/wasm/sample-calls.ts";
import {
  linearA8BlocksReference,
  linearA8Reference,
  linearFloatReference,
  linearWeightOnlyReference,
} from "./linear/reference.ts";
import { linearFloatWasm } from "./linear/wasm/float.ts";
import { linearA8BlocksWasm, linearA8Wasm } from "./linear/wasm/linear.ts";
import { linearWeightOnlyWasm } from "./linear/wasm/weight-only.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "./recurrent/reference.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./recurrent/wasm/linear-recurrence.ts";
import { shortConvolutionWasm } from "./recurrent/wasm/short-convolution.ts";
import { callOf, logicalWeights, packed, type SampleCall } from "./sample-call.ts";

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

function copyCalls(): SampleCall[] {
  const select = () => ({
    ...{ outer: M, stride: 4 * DIM, offset: 16, blockBytes: 40 },
    ...{ x: new Uint8Array(floats(M * DIM).buffer), y: new Uint8Array(M * 40) },
  });
  const gather = () => ({
    ...{ rows: M, dim: DIM, x: floats(M * DIM), y: new Float32Array(M * DIM) },
    columns: Int32Array.from({ length: DIM }, (_, i) => (7 * i) % DIM),
  });
  return [
    callOf(selectWasm, selectReference, select, ({ y }) => y),
    callOf(gatherColumnsWasm, gatherColumnsReference, gather, ({ y }) => y),
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

function ropeCalls(): SampleCall[] {
  const y = () => new Float32Array(M * DIM);
  const rope = () => ({
    ...{ tokens: M, heads: 2, headDim: DIM / 2, half: DIM / 4 },
    ...{ x: floats(M * DIM), angles: floats((M * DIM) / 2, 2), y: y() },
  });
  const angles = () => ({
    ...{ tokens: M, position: BigInt64Array.of(3n), scale: 1 },
    ...{ inverseFrequencies: Float32Array.from(floats(DIM), Math.abs), angles: new Float32Array(M * 2 * DIM) },
  });
  return [
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

/** Calls of the families that are declared. */
function declaredCalls(): SampleCall[] {
  return Object.values<Cases>(cases).flatMap(({ family, small }) => {
    const kernel = family.find(({ target }) => target === "wasm")!;
    return small.map((call, i) =>
      callOf(
        kernel,
        family.at(-1)!,
        () => argumentsFor(family, call),
        (args) => writtenBy(family, args),
        `case ${i + 1}`,
      ),
    );
  });
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
    ...ropeCalls(),
    ...copyCalls(),
    ...expertCalls(),
    ...declaredCalls(),
  ];
}
