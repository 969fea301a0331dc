/**
 * AQLM in WebAssembly for many rows of x and codes of 8 bits: tables of sums of 16 bits, a vector of eight rows of x for
 * each entry, for a run of some groups of inputs at a time. Threads share nothing: each has tables and sums of its own.
 *
 * Codebooks become integers of 13 bits once, x integers of 16 bits with a step for each row and run, such that 16 bits hold
 * the sums of a run; that rounds some 3e-4 of a result, so that short prompts keep floats.
 */
import type { Kernel } from "lowbit/extension";
import {
  ArgumentBlock,
  advance,
  type Body,
  call,
  defineFunction,
  type Expr,
  elementAt,
  type FunctionCode,
  f32x4,
  forRange,
  i16x8,
  i32,
  i32x4,
  int,
  type KernelCode,
  kernelFunction,
  type Local,
  type Placement,
  ptr,
  repeat,
  type Scope,
  select,
  size,
  smaller,
  VectorConstants,
  v128,
  type WasmPhase,
  type WasmStep,
  wasmKernel,
  when,
  widen,
} from "lowbit/wasm";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, formCounts } from "./form.ts";
import { BLOCK, HEADER_BYTES, TILE } from "./layout.ts";
import { floatsOf } from "./reference.ts";
import { constantPhase, constantsOf, ENTRIES, outputBytes, writeOutputs } from "./wasm-outputs.ts";

/** Rows of x that share a table; two vectors of them where they are floats. */
const ROWS = 8;
const HALVES = [0, 1] as const;
const TABLE_BYTES = 2 * ROWS * ENTRIES;
/** Tables of a run, at most, where a group has fewer: what first-level caches hold. */
const RUN_TABLES = 8;
const VECTOR_MAX = 4095;
const WORD_MAX = 32767;
const WORD_STEPS = 65536;
/** What the largest magnitude of a row's run counts as at least: a step's inverse must be a number. */
const TINY = 2 ** -100;
/** Tiles of a work item, at most: second-level caches hold their sums. */
const CHUNK_TILES = 128;
const ITEMS_PER_THREAD = 4;
/** Work items of a phase: between phases others may have a turn, and a run may be ended. */
const PHASE_ITEMS = 32;
/** Lanes of a tile whose lookups are written out. */
const LANES_AT_ONCE = 8;

/** Groups of inputs of a run; they divide a block. */
function runGroups({ codebooks }: AqlmForm): number {
  let groups = BLOCK;
  while (groups > 1 && groups * codebooks > RUN_TABLES) groups /= 2;
  return groups;
}

/** Memory of a thread, in bytes from its start on. */
function ownParts(form: AqlmForm, tiles: number) {
  const groups = runGroups(form);
  /** Columns of a run as floats [inputs][rows], then pairs of them as words [inputs / 2][rows]. */
  const columns = groups * form.codebooks * TABLE_BYTES;
  const pairs = columns + 4 * ROWS * groups * form.inGroup;
  const steps = pairs + 2 * ROWS * groups * form.inGroup;
  const totals = steps + 64;
  return { columns, pairs, steps, totals, bytes: totals + 4 * ROWS * TILE * tiles };
}

interface Codebooks {
  /** [codebooks][256][inGroup] */
  readonly words: Int16Array;
  /** NaN where a value is not finite. */
  readonly step: number;
  /** What the lengths of a run's groups may sum up to, in steps of x. */
  readonly lengthsMax: number;
}

/** Codebooks in steps of the largest value's 4095th part. */
function roundCodebooks(form: AqlmForm, vectors: Float32Array): Codebooks {
  const { codebooks, inGroup } = form;
  const largest = vectors.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (!Number.isFinite(largest)) return { words: new Int16Array(vectors.length), step: Number.NaN, lengthsMax: 1 };
  const step = largest / VECTOR_MAX;
  const words = Int16Array.from(vectors, (value) => (step > 0 ? Math.round(value / step) : 0));
  let lengths = 0;
  for (let book = 0; book < codebooks; book++) {
    // Squared.
    let longest = 0;
    for (let entry = 0; entry < ENTRIES; entry++) {
      const first = (book * ENTRIES + entry) * inGroup;
      const vector = words.subarray(first, first + inGroup);
      longest = Math.max(
        longest,
        vector.reduce((sum, value) => sum + value * value, 0),
      );
    }
    lengths += Math.sqrt(longest);
  }
  // x is rounded by half a step, tables by half of theirs; the rest is for float32.
  const groups = runGroups(form);
  const rounding = (groups * Math.sqrt(inGroup) * lengths) / 2 / WORD_STEPS + (groups * codebooks) / 2;
  const lengthsMax = ((WORD_MAX - rounding) * WORD_STEPS * 0.999) / Math.max(lengths, 1);
  return { words, step, lengthsMax };
}

const quantizeParams = {
  x: "ptr",
  own: "ptr",
  k: "i32",
  lastRow: "i32",
  groups: "i32",
  vectorStep: "f32",
  lengthsMax: "f32",
} as const;

/** Copies columns of a run to the thread's memory and gives each row's largest magnitude, and 0 or NaN. */
function gatherColumns(
  { inGroup }: AqlmForm,
  at: { x: Local<"ptr">; k: Local<"i32">; lastRow: Local<"i32">; groups: Local<"i32">; to: Local<"ptr"> },
  found: { largest: readonly Local<"v128">[]; zero: readonly Local<"v128">[] },
  constants: VectorConstants,
  scope: Scope,
): Body {
  const rows = scope.localArray("ptr", "row", ROWS);
  const column = scope.local("v128", "column");
  const count = scope.local("i32", "count");
  const row = (i: number) => select(i32.lt_u(int(i), at.lastRow), int(i), at.lastRow);
  const lanes = (half: number) =>
    [1, 2, 3].map((lane) => column.set(i32x4.replace_lane(column, i32.load(rows[4 * half + lane]!), lane)));
  return [
    rows.map((to, i) => to.set(elementAt(at.x, i32.mul(row(i), at.k), 4))),
    repeat(count, i32.mul(at.groups, int(inGroup)), [
      HALVES.map((half) => [
        column.set(v128.load32_splat(rows[4 * half]!)),
        lanes(half),
        v128.store(at.to, column, 16 * half),
        found.largest[half]!.set(f32x4.pmax(found.largest[half]!, f32x4.abs(column))),
        found.zero[half]!.set(f32x4.add(found.zero[half]!, f32x4.mul(column, constants.words(0)))),
      ]),
      rows.map((from) => advance(from, 4)),
      advance(at.to, 4 * ROWS),
    ]),
  ];
}

/** x of a run as pairs of words, and what a step of a table's sums is worth in each row. */
function quantizeRun(form: AqlmForm, name: string): FunctionCode<typeof quantizeParams, null> {
  const { inGroup } = form;
  const parts = ownParts(form, 0);
  return defineFunction(name, quantizeParams, ({ x, own, k, lastRow, groups, vectorStep, lengthsMax }, scope) => {
    const constants = new VectorConstants(scope);
    const [from, to] = [scope.local("ptr", "from"), scope.local("ptr", "to")];
    const count = scope.local("i32", "left");
    const two = (local: string) => scope.localArray("v128", local, 2);
    const [largest, zero, inverse] = [two("largest"), two("zero"), two("inverse")];
    const [lengths, step] = [two("lengths"), two("step")];
    const squares = scope.local("v128", "squares");
    const inputs = Array.from({ length: inGroup }, (_, j) => j);
    const value = (half: number, j: number) => f32x4.mul(v128.load(from, 4 * ROWS * j + 16 * half), inverse[half]!);
    const word = (half: number, j: number) => i32x4.trunc_sat_f32x4_s(f32x4.nearest(value(half, j)));
    const one = constants.floats(1);
    return [
      constants.prepare,
      largest.map((local) => local.set(constants.floats(TINY))),
      zero.map((local) => local.set(constants.words(0))),
      lengths.map((local) => local.set(constants.words(0))),
      to.set(ptr.add(own, size(parts.columns))),
      gatherColumns(form, { x, k, lastRow, groups, to }, { largest, zero }, constants, scope),
      HALVES.map((half) => inverse[half]!.set(f32x4.div(one, largest[half]!))),
      from.set(ptr.add(own, size(parts.columns))),
      repeat(count, groups, [
        HALVES.map((half) => [
          squares.set(constants.words(0)),
          inputs.map((j) => squares.set(f32x4.add(squares, f32x4.mul(value(half, j), value(half, j))))),
          lengths[half]!.set(f32x4.add(lengths[half]!, f32x4.sqrt(squares))),
        ]),
        advance(from, 4 * ROWS * inGroup),
      ]),
      HALVES.map((half) => {
        const needed = f32x4.div(lengths[half]!, f32x4.splat(lengthsMax));
        return [
          step[half]!.set(f32x4.mul(largest[half]!, f32x4.max(constants.floats(1 / WORD_MAX), needed))),
          inverse[half]!.set(f32x4.div(one, step[half]!)),
          step[half]!.set(f32x4.mul(f32x4.add(step[half]!, zero[half]!), f32x4.splat(vectorStep))),
          v128.store(own, step[half]!, parts.steps + 16 * half),
        ];
      }),
      from.set(ptr.add(own, size(parts.columns))),
      to.set(ptr.add(own, size(parts.pairs))),
      repeat(count, i32.mul(groups, int(inGroup / 2)), [
        HALVES.map((half) => {
          const low = v128.and(word(half, 0), constants.words(0xffff));
          return v128.store(to, v128.or(low, i32x4.shl(word(half, 1), int(16))), 16 * half);
        }),
        advance(from, 8 * ROWS),
        advance(to, 4 * ROWS),
      ]),
    ];
  });
}

const tableParams = { vectors: "ptr", own: "ptr", groups: "i32" } as const;

/** The tables of a run: the upper halves of sums of 32 bits, rounded. */
function runTables(form: AqlmForm, name: string): FunctionCode<typeof tableParams, null> {
  const { codebooks, inGroup } = form;
  const parts = ownParts(form, 0);
  const pairs = Array.from({ length: inGroup / 2 }, (_, q) => q);
  return defineFunction(name, tableParams, ({ vectors, own, groups }, scope) => {
    const constants = new VectorConstants(scope);
    const [to, from, at] = [scope.local("ptr", "to"), scope.local("ptr", "from"), scope.local("ptr", "pairs")];
    const x = HALVES.map((half) => scope.localArray("v128", `x${half}_`, pairs.length));
    const sums = scope.localArray("v128", "sum", 2);
    const two = scope.local("v128", "two");
    return [
      constants.prepare,
      to.set(own),
      at.set(ptr.add(own, size(parts.pairs))),
      repeat(scope.local("i32", "left"), groups, [
        pairs.map((q) => HALVES.map((half) => x[half]![q]!.set(v128.load(at, 4 * ROWS * q + 16 * half)))),
        from.set(vectors),
        repeat(scope.local("i32", "entry"), int(codebooks * ENTRIES), [
          sums.map((sum) => sum.set(constants.words(WORD_STEPS / 2))),
          pairs.map((q) => [
            two.set(v128.load32_splat(from, 4 * q)),
            sums.map((sum, half) => sum.set(i32x4.add(sum, i32x4.dot_i16x8_s(two, x[half]![q]!)))),
          ]),
          v128.store(to, i16x8.narrow_i32x4_s(i32x4.shr_s(sums[0]!, int(16)), i32x4.shr_s(sums[1]!, int(16)))),
          advance(from, 2 * inGroup),
          advance(to, 2 * ROWS),
        ]),
        advance(at, 2 * ROWS * inGroup),
      ]),
    ];
  });
}

/** Adds the sums of a run for eight rows, times their steps, to floats. */
function addToTotals(sum: Local<"v128">, steps: readonly Local<"v128">[], totals: Local<"ptr">, offset: number): Body {
  return HALVES.map((half) => {
    const words = half === 0 ? i32x4.extend_low_i16x8_s(sum) : i32x4.extend_high_i16x8_s(sum);
    const product = f32x4.mul(f32x4.convert_i32x4_s(words), steps[half]!);
    return v128.store(totals, f32x4.add(v128.load(totals, offset + 16 * half), product), offset + 16 * half);
  });
}

/** Zeros for `count` outputs; moves on. */
function zeroTotals(totals: Local<"ptr">, left: Local<"i32">, count: Expr<"i32">): Body {
  return repeat(left, count, [
    HALVES.map((half) => v128.store(totals, i32x4.splat(int(0)), 16 * half)),
    advance(totals, 4 * ROWS),
  ]);
}

const lookUpParams = { codes: "ptr", stride: "ptr", own: "ptr", tiles: "i32", rows: "i32", isFirst: "i32" } as const;

/** Adds what codes of tiles look up, `rows` rows of each and `stride` bytes from one to the next, to the sums. */
function lookUp(form: AqlmForm, name: string): FunctionCode<typeof lookUpParams, null> {
  const parts = ownParts(form, 0);
  const full = runGroups(form) * form.codebooks;
  return defineFunction(name, lookUpParams, ({ codes, stride, own, tiles, rows, isFirst }, scope) => {
    const [at, table, totals] = [scope.local("ptr", "at"), scope.local("ptr", "table"), scope.local("ptr", "totals")];
    const [lanes, left] = [scope.local("i32", "lanes"), scope.local("i32", "left")];
    const steps = scope.localArray("v128", "step", 2);
    const sum = scope.local("v128", "sum");
    const entry = (from: Local<"ptr">, to: Local<"ptr">, row: number, lane: number) =>
      v128.load(elementAt(to, i32.load8_u(from, row * TILE + lane), 2 * ROWS), row * TABLE_BYTES);
    const finish = (lane: number) => addToTotals(sum, steps, totals, 4 * ROWS * lane);
    const whole = (lane: number) => {
      const found = Array.from({ length: full }, (_, row) => entry(at, own, row, lane));
      return [sum.set(found.reduce((a, b) => i16x8.add(a, b))), finish(lane)];
    };
    const part: Body = [
      sum.set(i32x4.splat(int(0))),
      table.set(own),
      repeat(left, rows, [
        sum.set(i16x8.add(sum, entry(at, table, 0, 0))),
        advance(at, TILE),
        advance(table, TABLE_BYTES),
      ]),
      at.set(ptr.sub(at, ptr.mul(widen(rows), size(TILE)))),
      finish(0),
    ];
    const tile = (body: Body, count: number) => [
      at.set(codes),
      repeat(lanes, int(TILE / count), [body, advance(at, count), advance(totals, 4 * ROWS * count)]),
      codes.set(ptr.add(codes, stride)),
    ];
    const unrolled = Array.from({ length: LANES_AT_ONCE }, (_, lane) => whole(lane));
    const tilesLeft = scope.local("i32", "tiles_left");
    const firstTotals = totals.set(ptr.add(own, size(parts.totals)));
    return [
      when(isFirst, [firstTotals, zeroTotals(totals, left, i32.mul(tiles, int(TILE)))]),
      firstTotals,
      steps.map((step, half) => step.set(v128.load(own, parts.steps + 16 * half))),
      when(
        i32.eq(rows, int(full)),
        [repeat(tilesLeft, tiles, tile(unrolled, LANES_AT_ONCE))],
        [repeat(tilesLeft, tiles, tile(part, 1))],
      ),
    ];
  });
}

const itemBlock = new ArgumentBlock({
  x: "ptr",
  codes: "ptr",
  vectors: "ptr",
  /** [outputs padded to tiles] */
  scales: "ptr",
  biases: "ptr",
  y: "ptr",
  /** Memory of all threads. */
  own: "ptr",
  ownBytes: "ptr",
  vectorStep: "f32",
  lengthsMax: "f32",
  m: "i32",
  n: "i32",
  k: "i32",
  /** Groups of inputs, tiles of outputs; tiles of a chunk, and chunks. */
  inputs: "i32",
  tiles: "i32",
  chunkTiles: "i32",
  chunks: "i32",
  firstItem: "i32",
});

/** Eight rows of x by a chunk of tiles. */
function itemCode(form: AqlmForm): KernelCode {
  const { codebooks, inGroup } = form;
  const key = `aqlm_words_${codebooks}_${inGroup}`;
  const parts = ownParts(form, 0);
  const rowBytes = codebooks * TILE;
  const build = () => {
    const quantize = quantizeRun(form, `${key}_quantize`);
    const tables = runTables(form, `${key}_tables`);
    const add = lookUp(form, `${key}_look_up`);
    const entry = kernelFunction(key, itemBlock, (fields, { tile: item, thread }, scope) => {
      const { m, n, k, inputs, tiles, chunkTiles } = fields;
      const number = (name: string) => scope.local("i32", name);
      const pointer = (name: string) => scope.local("ptr", name);
      const [rows, first, group, groups] = [number("rows"), number("first"), number("group"), number("groups")];
      const [length, count, tile] = [number("length"), number("count"), number("tile")];
      const [own, x, codes] = [pointer("own_at"), pointer("x_at"), pointer("codes_at")];
      const [stride, sums] = [pointer("stride"), pointer("sums")];
      const runs = runGroups(form);
      return [
        own.set(ptr.add(fields.own, ptr.mul(widen(thread), fields.ownBytes))),
        item.set(i32.add(item, fields.firstItem)),
        first.set(i32.mul(i32.rem_u(item, fields.chunks), chunkTiles)),
        item.set(i32.mul(i32.div_u(item, fields.chunks), int(ROWS))),
        rows.set(i32.sub(m, item)),
        when(i32.lt_u(int(ROWS), rows), [rows.set(int(ROWS))]),
        count.set(i32.sub(tiles, first)),
        smaller(count, chunkTiles, count),
        x.set(elementAt(fields.x, item, ptr.mul(widen(k), size(4)))),
        fields.y.set(elementAt(fields.y, item, ptr.mul(widen(n), size(4)))),
        forRange(
          group,
          int(0),
          inputs,
          [
            // The block's codes, then those of the run and the first tile.
            length.set(i32.sub(inputs, i32.and(group, int(-BLOCK)))),
            when(i32.lt_u(int(BLOCK), length), [length.set(int(BLOCK))]),
            stride.set(ptr.mul(widen(length), size(rowBytes))),
            codes.set(elementAt(fields.codes, i32.mul(i32.and(group, int(-BLOCK)), tiles), rowBytes)),
            codes.set(elementAt(elementAt(codes, first, stride), i32.and(group, int(BLOCK - 1)), rowBytes)),
            groups.set(i32.sub(inputs, group)),
            when(i32.lt_u(int(runs), groups), [groups.set(int(runs))]),
            call(quantize, {
              ...{ x, own, k, lastRow: i32.sub(rows, int(1)), groups },
              ...{ vectorStep: fields.vectorStep, lengthsMax: fields.lengthsMax },
            }),
            call(tables, { vectors: fields.vectors, own, groups }),
            call(add, {
              ...{ codes, stride, own, tiles: count, rows: i32.mul(groups, int(codebooks)) },
              isFirst: i32.eqz(group),
            }),
            advance(x, 4 * inGroup * runs),
          ],
          runs,
        ),
        sums.set(ptr.add(own, size(parts.totals))),
        forRange(tile, first, i32.add(first, count), [
          writeOutputs(ROWS, { ...fields, rows }, tile, sums, scope),
          advance(sums, 4 * ROWS * TILE),
        ]),
      ];
    });
    return [entry, quantize, tables, add];
  };
  return { key, build };
}

/** How a product is split among threads. */
function splitWork({ m, codes: { form } }: AqlmArgs, threads: number) {
  const tiles = Math.ceil(form.n / TILE);
  const eights = Math.ceil(m / ROWS);
  const wanted = threads === 1 ? 1 : Math.ceil((ITEMS_PER_THREAD * threads) / eights);
  const chunkTiles = Math.ceil(tiles / Math.min(tiles, Math.max(wanted, Math.ceil(tiles / CHUNK_TILES))));
  const chunks = Math.ceil(tiles / chunkTiles);
  return { tiles, chunkTiles, chunks, items: eights * chunks, ownBytes: ownParts(form, chunkTiles).bytes };
}

const wordBytes = ({ codebooks, inGroup }: AqlmForm) => 2 * codebooks * ENTRIES * inGroup;

function wordStep(call: AqlmArgs, place: Placement): WasmStep {
  const { m, codes, vectors, bias } = call;
  const { form } = codes;
  const { words, step: vectorStep, lengthsMax } = roundCodebooks(form, floatsOf(vectors));
  const scales = floatsOf(call.scales).map((scale) => scale * WORD_STEPS);
  const constants = constantsOf(form, words, scales, bias);
  const { tiles, chunkTiles, chunks, items, ownBytes } = splitWork(call, place.threads);
  const at = place.scratch;
  const scalesAt = at + wordBytes(form);
  const shared = {
    ...{ x: place.read(call.x), codes: place.read(codes.bytes) + HEADER_BYTES, y: place.write(call.y) },
    ...{ vectors: at, scales: scalesAt, biases: scalesAt + outputBytes(form) },
    ...{ own: at + constants.length, ownBytes, vectorStep, lengthsMax },
    ...{ m, n: form.n, k: form.k, inputs: formCounts(form).inputs, tiles, chunkTiles, chunks },
  };
  const phases: WasmPhase[] = [constantPhase(at, constants)];
  const code = itemCode(form);
  for (let firstItem = 0; firstItem < items; firstItem += PHASE_ITEMS) {
    const args = itemBlock.encode({ ...shared, firstItem });
    phases.push({ code, tiles: Math.min(PHASE_ITEMS, items - firstItem), args });
  }
  return { phases };
}

export const aqlmWordsWasm: Kernel<AqlmArgs> = wasmKernel({
  name: "aqlm_lut16_c8_64x64x32_wasm_simd",
  layouts: ["aqlm_tiles8"],
  bits: null,
  needs: ["simd128"],
  mStep: 64,
  nStep: TILE,
  scratchBytes(call, threads) {
    const { form } = call.codes;
    return wordBytes(form) + 2 * outputBytes(form) + threads * splitWork(call, threads).ownBytes;
  },
  step: wordStep,
});
