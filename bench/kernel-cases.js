/**
 * Cases for measuring kernels: arguments of each family, in the dimensions of Llama-3.2-1B. A case counts the bytes that must
 * be read or written and the multiply-adds that must be computed, whatever else a kernel does.
 */
import { argumentsFor } from "../dist/kernels/cases.js";
import { plainFields, plainValues } from "../dist/kernels/declaration.js";
import * as cases from "../dist/kernels/families/cases.js";
import { layouts, openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { embeddingByteLength, packEmbedding } from "../dist/kernels/layout/torchao-embedding.js";
import { partOffsets, RUN_FIELDS } from "../dist/kernels/sequence-table.js";
import { createRandom } from "../dist/text/random.js";
import { requireAddon } from "./peak.js";

const HIDDEN = 2048;
const HEADS = 32;
const KV_HEADS = 8;
const HEAD_DIM = 64;
/** Rows of the weights of linear layers; fewer for reference kernels, which have no speed to speak of. */
const N = 4096;
const N_REFERENCE = 128;
/** Positions in the cache before the call. */
const CONTEXT = 2000;
/** Positions of a page of keys and values. */
const PAGE = 32;

/**
 * @typedef {object} Case
 * @property {string} what Sizes, for people.
 * @property {number} bytes
 * @property {number} macs 0 where other things than multiply-adds take the time.
 * @property {"i8" | "f32"} type Of the multiply-adds.
 * @property {(copy: number) => any} args Arguments on memory of their own for each copy.
 */

const random = createRandom(7);
const noise = Float32Array.from({ length: 65521 }, () => 2 * random.uniform() - 1);

function floats(length) {
  const values = new Float32Array(length);
  for (let at = 0; at < length; at += noise.length) values.set(noise.subarray(0, length - at), at);
  return values;
}

function integers(length, bits) {
  const block = Int8Array.from(
    noise.subarray(0, 65520),
    (v) => Math.floor(((v + 1) / 2) * 2 ** bits) - 2 ** (bits - 1),
  );
  const values = new Int8Array(length);
  for (let at = 0; at < length; at += block.length) values.set(block.subarray(0, length - at), at);
  return values;
}

/** Packed weights of each (layout, bits, group size), made once. @type {Map<string, Uint8Array>} */
const packedWeights = new Map();

function packed(layoutName, spec) {
  const key = `${layoutName} ${JSON.stringify(spec)}`;
  if (!packedWeights.has(key)) {
    const layout = layouts.find(({ name }) => name === layoutName);
    const scales = new Float32Array((spec.n * spec.k) / spec.groupSize).fill(2 ** -7);
    const weights = { ...spec, qvals: integers(spec.n * spec.k, spec.bits), scales, zeros: null, levels: null };
    // One at a time is in use.
    packedWeights.clear();
    packedWeights.set(key, packWeights(weights, null, layout));
  }
  return packedWeights.get(key);
}

/** @returns {Case} */
function packedLinear({ m, n, bits, groupSize, layout }) {
  const scaleDType = layout === "torchao_universal" ? "f32" : "f16";
  const spec = { n, k: HIDDEN, bits, groupSize, hasZeros: false, hasLevels: false, scaleDType };
  const bytes = packed(layout, spec);
  return {
    what: `m ${m}, ${bits} bits, group ${groupSize}, [${n}, ${HIDDEN}] in ${layout}`,
    bytes: bytes.length + 4 * m * (HIDDEN + n),
    macs: m * n * HIDDEN,
    type: "i8",
    args: () => ({ m, x: floats(m * HIDDEN), weights: openPacked(bytes.slice(), spec), y: new Float32Array(m * n) }),
  };
}

/** @returns {Case} */
function gatedLinear(options) {
  const { m, n } = options;
  const { args, ...rest } = packedLinear(options);
  const bytes = rest.bytes - 2 * m * n;
  return { ...rest, bytes, args: () => ({ ...args(), y: new Float32Array((m * n) / 2) }) };
}

/** @returns {Case} */
function floatLinear({ m, n, dtype }) {
  const width = dtype === "f32" ? 4 : 2;
  const data = () => (dtype === "f32" ? floats(n * HIDDEN) : new Uint16Array(n * HIDDEN).fill(0x3c00));
  return {
    what: `m ${m}, ${dtype}, [${n}, ${HIDDEN}]`,
    bytes: width * n * HIDDEN + 4 * m * (HIDDEN + n),
    macs: m * n * HIDDEN,
    type: "f32",
    args: () => ({
      ...{ m, n, k: HIDDEN, bias: null },
      ...{ x: floats(m * HIDDEN), weights: { dtype, data: data() }, y: new Float32Array(m * n) },
    }),
  };
}

const ids = (count, rows) => BigInt64Array.from({ length: count }, (_, i) => BigInt((i * 7919) % rows));

/** @returns {Case} */
function sharedEmbedding({ m, n, bits, groupSize, layout }) {
  const { args, what } = packedLinear({ m: 1, n, bits, groupSize, layout });
  return {
    what: what.replace("m 1,", `${m} rows,`),
    bytes: m * HIDDEN * (bits / 8 + 4),
    ...{ macs: 0, type: "f32" },
    args: () => ({ weights: args().weights, indices: ids(m, n), y: floats(m * HIDDEN), first: 0, rows: n }),
  };
}

/** @returns {Case} */
function packedEmbedding({ m, bits }) {
  const shape = { bits, rows: N, dim: HIDDEN };
  const groups = HIDDEN / 32;
  const table = packEmbedding(integers(N * HIDDEN, bits), shape);
  return {
    what: `${m} rows, ${bits} bits, [${N}, ${HIDDEN}] of ${embeddingByteLength(shape)} bytes`,
    bytes: m * HIDDEN * (bits / 8 + 4),
    ...{ macs: 0, type: "f32" },
    args: () => ({
      ...{ ...shape, groups, packed: table, scales: floats(N * groups), zeros: new Int8Array(N * groups) },
      ...{ indices: ids(m, N), y: new Float32Array(m * HIDDEN) },
    }),
  };
}

/** Caches by what they hold: bytes a value, and values of a row of all heads. */
const caches = {
  f32: { width: 4, data: floats },
  f16: { width: 2, data: (length) => new Uint16Array(length).fill(0x3c00) },
  int8: { width: 1, data: (length) => integers(length, 8) },
};

/** Rows from which a step is of a prompt. */
const PROMPT_ROWS = 32;

/** Pages of one sequence in no order, as a step finds them: what `update_and_attend` reads, native memory. */
function pagedTable({ m, dtype, context, kvHeads, headDim }) {
  const cache = { type: dtype, kvHeads, headDim, window: 0, pagePositions: PAGE };
  const { layerBytes, keyScales } = partOffsets(cache);
  const pagesMax = Math.ceil((context + m) / PAGE);
  const bytes = new Uint8Array(
    requireAddon().allocate(pagesMax * layerBytes) ?? new ArrayBuffer(pagesMax * layerBytes),
  );
  const { data } = caches[dtype];
  const filled = data(bytes.length / caches[dtype].width);
  bytes.set(new Uint8Array(filled.buffer, filled.byteOffset, filled.byteLength));
  // Any bytes are integers, but not any are scales.
  for (let at = keyScales; dtype === "int8" && at < bytes.length; at += layerBytes)
    new Float32Array(bytes.buffer, bytes.byteOffset + at, (layerBytes - keyScales) / 4).fill(2 ** -7);
  const start = requireAddon().addressOf(bytes);
  const order = Array.from({ length: pagesMax }, (_, i) => i).sort((a, b) => noise[a] - noise[b]);
  const pages = BigUint64Array.from(order, (i) => start + BigInt(i * layerBytes));
  const page = (_slot, index) => bytes.subarray(order[index] * layerBytes, (order[index] + 1) * layerBytes);
  const runs = new Int32Array(1 + RUN_FIELDS);
  runs.set([1, 0, m, context, 0, Number(m >= PROMPT_ROWS)]);
  return { table: { runs, runsMax: 1 }, pages: { cache: { ...cache, pagesMax, pages, page }, offset: 0 } };
}

/** @returns {Case} */
export function pagedAttention({ m, dtype, context = CONTEXT, heads = HEADS, kvHeads = KV_HEADS, headDim = HEAD_DIM }) {
  const kv = kvHeads * headDim;
  const pairs = heads * m * (context + (m + 1) / 2);
  return {
    what: `${m} tokens after ${context}, ${heads}/${kvHeads} heads of ${headDim}, pages of ${dtype}`,
    bytes: 2 * caches[dtype].width * (context + m) * kv + 4 * 2 * m * heads * headDim,
    macs: 2 * pairs * headDim,
    type: "f32",
    args: () => ({
      ...{ rows: m, heads, kvHeads, headDim, window: 0, softcap: 0 },
      ...{ q: floats(m * heads * headDim), k: floats(m * kv), v: floats(m * kv), scale: headDim ** -0.5 },
      ...{
        ...pagedTable({ m, dtype, context, kvHeads, headDim }),
        sinks: null,
        y: new Float32Array(m * heads * headDim),
      },
    }),
  };
}

/** @returns {Case} */
function ropePagedAttention({ m, dtype, context }) {
  const { args: separate, ...rest } = pagedAttention({ m, dtype, context });
  const args = () => {
    const { q: _q, k: _k, v: _v, ...shared } = separate();
    const qkv = floats(m * (HEADS + 2 * KV_HEADS) * HEAD_DIM);
    return { ...shared, qkv, angles: floats(m * HEAD_DIM), half: HEAD_DIM / 2 };
  };
  return { ...rest, args };
}

/** @returns {Case} */
function attention({ m }) {
  const capacity = CONTEXT + m;
  const kv = KV_HEADS * HEAD_DIM;
  const pairs = HEADS * m * (CONTEXT + (m + 1) / 2);
  return {
    what: `${m} tokens after ${CONTEXT}, ${HEADS}/${KV_HEADS} heads of ${HEAD_DIM}, one cache`,
    bytes: 2 * 4 * capacity * kv + 4 * 2 * m * HEADS * HEAD_DIM,
    macs: 2 * pairs * HEAD_DIM,
    type: "f32",
    args: () => ({
      ...{ tokens: m, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM, capacity, window: 0, softcap: 0 },
      ...{ q: floats(m * HEADS * HEAD_DIM), k: floats(m * kv), v: floats(m * kv), scale: HEAD_DIM ** -0.5 },
      ...{ keyCache: floats(capacity * kv), valueCache: floats(capacity * kv) },
      ...{ position: BigInt64Array.of(BigInt(CONTEXT)), y: new Float32Array(m * HEADS * HEAD_DIM) },
    }),
  };
}

/** Qwen 3.5: heads of recurrent layers, dimension of their keys and values, and taps of a short convolution. */
const STATE_HEADS = 16;
const STATE_DIM = 128;
const TAPS = 4;

/** The state of one sequence, in native memory. */
function stateTable(m, elements) {
  const byteLength = 4 * elements;
  const addresses = () => {
    const bytes = new Uint8Array(requireAddon().allocate(byteLength) ?? new ArrayBuffer(byteLength));
    return BigUint64Array.of(requireAddon().addressOf(bytes));
  };
  const runs = new Int32Array(1 + RUN_FIELDS);
  runs.set([1, 0, m, CONTEXT, 0]);
  const table = { runs, runsMax: 1, slots: 1, states: addresses(), nextStates: addresses() };
  return { table, state: { offset: 0, byteLength } };
}

/** @returns {Case} */
export function shortConvolution({ m }) {
  const channels = 3 * STATE_HEADS * STATE_DIM;
  return {
    what: `${m} rows of ${channels} channels, ${TAPS} taps`,
    bytes: 4 * channels * (2 * m + TAPS + 2 * (TAPS - 1)),
    macs: m * TAPS * channels,
    type: "f32",
    args: () => ({
      ...{ rows: m, channels, taps: TAPS, bias: null, silu: true, ...stateTable(m, (TAPS - 1) * channels) },
      ...{ x: floats(m * channels), weight: floats(TAPS * channels), y: new Float32Array(m * channels) },
    }),
  };
}

/** @returns {Case} */
export function linearRecurrence({ m, dtype: rule }) {
  const [width, elements] = [STATE_HEADS * STATE_DIM, STATE_HEADS * STATE_DIM ** 2];
  const isDelta = rule === "delta";
  const row = () => floats(m * width).map((value) => value / Math.sqrt(STATE_DIM / 3));
  return {
    what: `${m} rows, ${STATE_HEADS} states [${STATE_DIM}, ${STATE_DIM}], ${isDelta ? "gated delta rule" : "no delta rule"}`,
    bytes: 4 * (2 * elements + m * 4 * width),
    macs: m * (isDelta ? 4 : 3) * elements,
    type: "f32",
    args: () => ({
      ...{ rows: m, keyHeads: STATE_HEADS, heads: STATE_HEADS, keyDim: STATE_DIM, valueDim: STATE_DIM, scale: 1 },
      ...{ q: row(), k: row(), v: row(), logDecay: new Float32Array(m * STATE_HEADS).fill(-0.1) },
      ...{ beta: isDelta ? new Float32Array(m * STATE_HEADS).fill(0.5) : null, ...stateTable(m, elements) },
      y: new Float32Array(m * width),
    }),
  };
}

/** Families that do little with each value: `arrays` of `length` values go by. */
function elementwise(what, length, arrays, args) {
  return { what, bytes: 4 * length * arrays, macs: 0, type: "f32", args };
}

/** Texts of up to 32 rows. */
const poolPacked = ({ m }) => {
  const texts = Math.ceil(m / 32);
  const offsets = BigInt64Array.from({ length: texts + 1 }, (_, i) => BigInt(Math.min(m, 32 * i)));
  const args = () => ({
    ...{ pooling: "mean", rows: m, dim: HIDDEN, x: floats(m * HIDDEN), offsets, y: new Float32Array(texts * HIDDEN) },
  });
  return elementwise(`${texts} texts of ${m} x ${HIDDEN}`, m * HIDDEN, 1, args);
};

const embeddingFloat = ({ m, dtype }) => ({
  ...elementwise(`${m} rows, ${dtype}`, m * HIDDEN, 2, () => ({
    ...{ rows: N, dim: HIDDEN, indices: ids(m, N), y: new Float32Array(m * HIDDEN) },
    weights: { dtype, data: dtype === "f32" ? floats(N * HIDDEN) : new Uint16Array(N * HIDDEN) },
  })),
});

const sizes = {
  hidden: HIDDEN,
  intermediate: 8192,
  heads: HEADS,
  kvHeads: KV_HEADS,
  headDim: HEAD_DIM,
  vocabulary: 32_000,
};

/** Bytes that a call reads and writes. */
function bytesOfCall({ fields }, args) {
  const values = plainValues(fields, args);
  const arrays = Object.entries(plainFields(fields)).filter(([name, { kind }]) => kind === "array" && values[name]);
  return arrays.reduce((sum, [name, { access }]) => sum + (access === "change" ? 2 : 1) * values[name].byteLength, 0);
}

/** Families that have cases: calls of a model's step of `m` tokens. */
const declared = Object.entries(cases).map(([name, { family, model }]) => {
  const make = ({ m }) => {
    const call = model(m, sizes);
    const bytes = bytesOfCall(family, argumentsFor(family, call));
    return {
      ...{
        what: Object.entries(call)
          .filter(([, value]) => !ArrayBuffer.isView(value))
          .map(([name, value]) => `${name} ${value}`)
          .join(", "),
        bytes,
        macs: 0,
        type: "f32",
      },
      args: () => argumentsFor(family, call),
    };
  };
  return [name, { make }];
});

/**
 * By export of src/kernels/families/index.ts; the options beside m that a family is measured with. `isNative`: its arguments
 * lie in native memory, which WebAssembly does not read.
 */
export const families = {
  ...Object.fromEntries(declared),
  linearA8: { make: packedLinear, packed: true },
  linearA8Blocks: { make: packedLinear, packed: true },
  linearA8Swiglu: { make: gatedLinear, packed: true },
  linearA8BlocksSwiglu: { make: gatedLinear, packed: true },
  linearWeightOnly: { make: (variant) => ({ ...packedLinear(variant), type: "f32" }), packed: true },
  linearFloat: { make: floatLinear, dtypes: ["f32", "f16", "bf16"] },
  embeddingFloat: { make: embeddingFloat, dtypes: ["f32", "bf16"] },
  embeddingPacked: { make: packedEmbedding, bits: true },
  embeddingShared: { make: sharedEmbedding, packed: true },
  attention: { make: attention },
  updateAndAttend: { make: pagedAttention, dtypes: Object.keys(caches), isNative: true },
  ropeUpdateAndAttend: { make: ropePagedAttention, dtypes: Object.keys(caches), isNative: true },
  shortConvolution: { make: shortConvolution, isNative: true },
  linearRecurrence: { make: linearRecurrence, dtypes: ["delta", "plain"], isNative: true },
  poolPacked: { make: poolPacked },
};

/** Options of all cases that a kernel is measured on. @returns {object[]} */
export function variantsOf(family, kernel, { rowCounts, groupSizes, bits: wanted }) {
  const bits = (kernel.bits ?? [1, 2, 3, 4, 5, 6, 7, 8]).filter((b) => wanted.includes(b));
  const { packed: isPacked, dtypes, bits: hasBits } = families[family];
  let variants = [{ n: kernel.target === "reference" ? N_REFERENCE : N }];
  const cross = (name, values) => {
    variants = variants.flatMap((variant) => values.map((value) => ({ ...variant, [name]: value })));
  };
  if (isPacked) {
    cross("layout", kernel.layouts ?? layouts.map(({ name }) => name));
    cross("groupSize", groupSizes);
  }
  if (isPacked || hasBits) cross("bits", bits);
  if (dtypes) cross("dtype", dtypes);
  cross(
    "m",
    rowCounts.filter((m) => m >= kernel.mStep),
  );
  return variants;
}
