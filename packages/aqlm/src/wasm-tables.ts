/**
 * AQLM in WebAssembly, for codes of 8 bits: a table of x . vector for every group, codebook and entry, which threads
 * build group by group; then sums of looked up floats, a block of inputs and a span of tiles at a time. Exact in
 * float32. Four rows of x share tables of vectors, with a lane for each row, and the reading of codes. Where there are
 * many rows, each thread builds tables of its own for the four that it works on, and no thread waits for another.
 *
 * Tables of 12 bits took 1.2 to 1.4 times as long by relaxed swizzles in V8 on x86, 1.8 to 2.3 times by strict ones.
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
  f32,
  f32x4,
  float,
  forRange,
  i32,
  i32x4,
  int,
  type KernelCode,
  kernelFunction,
  type Local,
  type Placement,
  ptr,
  repeat,
  select,
  size,
  v128,
  type WasmPhase,
  type WasmStep,
  wasmKernel,
  when,
  whileDo,
  widen,
} from "lowbit/wasm";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, formCounts } from "./form.ts";
import { BLOCK, HEADER_BYTES, TILE } from "./layout.ts";
import { floatsOf } from "./reference.ts";
import { constantPhase, constantsOf, ENTRIES, outputBytes, writeOutputs } from "./wasm-outputs.ts";

const TABLE_BYTES = 4 * ENTRIES;
/** Groups whose tables for four rows are in memory at once: what second-level caches hold. */
const CHUNK_GROUPS = 2 * BLOCK;
/** Rows of x that share a table. */
type Rows = 1 | 4;
/** Vectors of four entries whose sums stay in variables. */
const ENTRY_VECTORS = 8;
/** Rows of codes whose tables are looked up in one pass over the sums. */
const ROWS_AT_ONCE = 4;
/** Tiles that a block's tables serve while the nearest cache has them, at most; spans of a thread, at least. */
const SPAN_MAX = 16;
const SPANS_PER_THREAD = 4;

const tableBlock = new ArgumentBlock({ x: "ptr", vectors: "ptr", tables: "ptr" });

/** Tables of one group of inputs: tile = group. */
function tableCode({ codebooks, inGroup }: AqlmForm): KernelCode {
  const key = `aqlm_tables_${codebooks}_${inGroup}`;
  const build = () => [
    kernelFunction(key, tableBlock, ({ x, vectors, tables }, { tile }, scope) => {
      const sums = scope.localArray("v128", "sum", ENTRY_VECTORS);
      const [book, part] = [scope.local("i32", "book"), scope.local("i32", "part")];
      const [from, to] = [scope.local("ptr", "from"), scope.local("ptr", "to")];
      const term = (j: number, v: number): Expr<"v128"> =>
        f32x4.mul(v128.load32_splat(x, 4 * j), v128.load(from, TABLE_BYTES * j + 16 * v));
      const inputs = Array.from({ length: inGroup - 1 }, (_, j) => j + 1);
      return [
        x.set(elementAt(x, tile, 4 * inGroup)),
        to.set(elementAt(tables, tile, codebooks * TABLE_BYTES)),
        from.set(vectors),
        repeat(book, int(codebooks), [
          repeat(part, int(ENTRIES / (4 * ENTRY_VECTORS)), [
            sums.map((sum, v) => sum.set(term(0, v))),
            inputs.map((j) => sums.map((sum, v) => sum.set(f32x4.add(sum, term(j, v))))),
            sums.map((sum, v) => v128.store(to, sum, 16 * v)),
            advance(from, 16 * ENTRY_VECTORS),
            advance(to, 16 * ENTRY_VECTORS),
          ]),
          advance(from, TABLE_BYTES * (inGroup - 1)),
        ]),
      ];
    }),
  ];
  return { key, build };
}

const fourFields = { x: "ptr", vectors: "ptr", tables: "ptr", k: "i32", lastRow: "i32" } as const;
const fourBlock = new ArgumentBlock(fourFields);
const fourParams = { ...fourFields, tile: "i32" } as const;

/** Tables of one group of inputs for four rows, the last one again where there are fewer. `vectors` are as stored. */
function fourTables({ codebooks, inGroup }: AqlmForm, name: string): FunctionCode<typeof fourParams, null> {
  return defineFunction(name, fourParams, ({ x, vectors, tables, k, lastRow, tile }, scope) => {
    const inputs = Array.from({ length: inGroup }, (_, j) => j);
    const columns = scope.localArray("v128", "column", inGroup);
    const sum = scope.local("v128", "sum");
    const row = scope.local("i32", "row");
    const from = scope.local("ptr", "from");
    const load = (i: number): Body => [
      row.set(select(i32.lt_u(int(i), lastRow), int(i), lastRow)),
      from.set(elementAt(elementAt(x, i32.mul(row, k), 4), tile, 4 * inGroup)),
      columns.map((column, j) =>
        column.set(i === 0 ? v128.load32_splat(from, 4 * j) : i32x4.replace_lane(column, i32.load(from, 4 * j), i)),
      ),
    ];
    return [
      [0, 1, 2, 3].map(load),
      tables.set(elementAt(tables, tile, 4 * codebooks * TABLE_BYTES)),
      repeat(scope.local("i32", "entry"), int(codebooks * ENTRIES), [
        sum.set(f32x4.mul(columns[0]!, v128.load32_splat(vectors))),
        inputs.slice(1).map((j) => sum.set(f32x4.add(sum, f32x4.mul(columns[j]!, v128.load32_splat(vectors, 4 * j))))),
        v128.store(tables, sum),
        advance(vectors, 4 * inGroup),
        advance(tables, 16),
      ]),
    ];
  });
}

function fourTableCode(form: AqlmForm): KernelCode {
  const key = `aqlm_four_tables_${form.codebooks}_${form.inGroup}`;
  const build = () => {
    const body = fourTables(form, `${key}_body`);
    const entry = kernelFunction(key, fourBlock, ({ x, vectors, tables, k, lastRow }, { tile }) => [
      call(body, { x, vectors, tables, k, lastRow, tile }),
    ]);
    return [entry, body];
  };
  return { key, build };
}

const sumFields = {
  codes: "ptr",
  tables: "ptr",
  /** [outputs padded to tiles] */
  scales: "ptr",
  biases: "ptr",
  y: "ptr",
  /** [tiles, 64 outputs, rows] */
  sums: "ptr",
  /** Groups whose tables there are. */
  groups: "i32",
  tiles: "i32",
  /** Tiles of a call. */
  span: "i32",
  n: "i32",
  /** Rows that y has, of four. */
  rows: "i32",
  /** Whether these groups are the first, and the last ones. */
  isFirst: "i32",
  isLast: "i32",
} as const;
const sumBlock = new ArgumentBlock(sumFields);
const sumParams = { ...sumFields, part: "i32" } as const;

/** Adds what rows of codes of a tile look up to its sums, and moves on. */
function addRows(rows: number, width: Rows, at: Record<"codes" | "tables" | "sums", Local<"ptr">>): Body {
  const { codes, tables, sums } = at;
  const tableBytes = width * TABLE_BYTES;
  const entry = (lane: number, row: number) => elementAt(tables, i32.load8_u(codes, row * TILE + lane), 4 * width);
  const indexes = Array.from({ length: rows }, (_, row) => row);
  const add = (lane: number) => {
    if (width === 1) {
      const value = (sum: Expr<"f32">, row: number) => f32.add(sum, f32.load(entry(lane, row), row * tableBytes));
      return f32.store(sums, indexes.reduce(value, f32.load(sums, 4 * lane)), 4 * lane);
    }
    const value = (sum: Expr<"v128">, row: number) => f32x4.add(sum, v128.load(entry(lane, row), row * tableBytes));
    return v128.store(sums, indexes.reduce(value, v128.load(sums, 16 * lane)), 16 * lane);
  };
  return [
    Array.from({ length: TILE }, (_, lane) => add(lane)),
    advance(codes, rows * TILE),
    advance(tables, rows * tableBytes),
  ];
}

/** Sums of a span of tiles over some groups, block by block; behind the last ones, scales and biases. */
function tileSums({ codebooks }: AqlmForm, width: Rows, name: string): FunctionCode<typeof sumParams, null> {
  return defineFunction(name, sumParams, ({ part, ...fields }, scope) => {
    const pointer = (name: string) => scope.local("ptr", name);
    const [codes, tables, block] = [pointer("at"), pointer("table"), pointer("block")];
    const at = { sums: pointer("tile_sums"), codes, tables };
    const number = (name: string) => scope.local("i32", name);
    const [first, count, tile, zeroed] = [number("first"), number("count"), number("tile"), number("zeroed")];
    const [left, length, rows] = [number("left"), number("length"), number("rows_left")];
    const rowBytes = codebooks * TILE;
    const sumBytes = 4 * width * TILE;
    const pass = (count: number) =>
      whileDo(i32.ge_u(rows, int(count)), [addRows(count, width, at), rows.set(i32.sub(rows, int(count)))]);
    const firstSums = at.sums.set(elementAt(fields.sums, first, sumBytes));
    return [
      first.set(i32.mul(part, fields.span)),
      count.set(i32.sub(fields.tiles, first)),
      when(i32.lt_u(fields.span, count), [count.set(fields.span)]),
      firstSums,
      when(fields.isFirst, [
        forRange(zeroed, int(0), i32.mul(count, int(width * TILE)), [
          f32.store(elementAt(at.sums, zeroed, 4), float(0)),
        ]),
      ]),
      block.set(fields.codes),
      left.set(fields.groups),
      whileDo(left, [
        length.set(int(BLOCK)),
        when(i32.lt_u(left, int(BLOCK)), [length.set(left)]),
        codes.set(ptr.add(block, ptr.mul(widen(i32.mul(first, length)), size(rowBytes)))),
        block.set(ptr.add(block, ptr.mul(widen(i32.mul(fields.tiles, length)), size(rowBytes)))),
        left.set(i32.sub(left, length)),
        firstSums,
        repeat(tile, count, [
          tables.set(fields.tables),
          rows.set(i32.mul(length, int(codebooks))),
          pass(ROWS_AT_ONCE),
          pass(1),
          advance(at.sums, sumBytes),
        ]),
        fields.tables.set(tables),
      ]),
      when(fields.isLast, [
        firstSums,
        forRange(tile, first, i32.add(first, count), [
          writeOutputs(width, fields, tile, at.sums, scope),
          advance(at.sums, sumBytes),
        ]),
      ]),
    ];
  });
}

function sumCode(form: AqlmForm, width: Rows): KernelCode {
  const key = `aqlm_sums_${form.codebooks}_${width}`;
  const build = () => {
    const body = tileSums(form, width, `${key}_body`);
    const entry = kernelFunction(key, sumBlock, (fields, { tile }) => [call(body, { ...fields, part: tile })]);
    return [entry, body];
  };
  return { key, build };
}

const foursBlock = new ArgumentBlock({
  x: "ptr",
  codes: "ptr",
  vectors: "ptr",
  scales: "ptr",
  biases: "ptr",
  y: "ptr",
  /** Tables and then sums, of each thread. */
  own: "ptr",
  ownBytes: "ptr",
  tableBytes: "ptr",
  /** Rows of x and y; the first four that tile 0 works on. */
  m: "i32",
  firstFour: "i32",
  n: "i32",
  k: "i32",
  /** Groups of inputs, tiles of outputs. */
  inputs: "i32",
  tiles: "i32",
});

/** All of four rows of x, in memory of the thread's own: tile = four rows. */
function foursCode(form: AqlmForm): KernelCode {
  const { codebooks, inGroup } = form;
  const key = `aqlm_fours_${codebooks}_${inGroup}`;
  const build = () => {
    const tablesOf = fourTables(form, `${key}_tables`);
    const sumsOf = tileSums(form, 4, `${key}_sums`);
    const entry = kernelFunction(key, foursBlock, (fields, { tile, thread }, scope) => {
      const { m, n, k, inputs, tiles, tableBytes } = fields;
      const number = (name: string) => scope.local("i32", name);
      const [rows, first, groups, part] = [number("rows"), number("first"), number("groups"), number("part")];
      const [tables, x, codes] = ["tables", "inputs_at", "codes_at"].map((name) => scope.local("ptr", name)) as [
        Local<"ptr">,
        Local<"ptr">,
        Local<"ptr">,
      ];
      const sums = ptr.add(tables, tableBytes);
      return [
        tables.set(ptr.add(fields.own, ptr.mul(widen(thread), fields.ownBytes))),
        tile.set(i32.mul(i32.add(tile, fields.firstFour), int(4))),
        rows.set(i32.sub(m, tile)),
        when(i32.gt_u(rows, int(4)), [rows.set(int(4))]),
        x.set(elementAt(fields.x, tile, ptr.mul(widen(k), size(4)))),
        codes.set(fields.codes),
        fields.y.set(elementAt(fields.y, tile, ptr.mul(widen(n), size(4)))),
        forRange(
          first,
          int(0),
          inputs,
          [
            groups.set(i32.sub(inputs, first)),
            when(i32.gt_u(groups, int(CHUNK_GROUPS)), [groups.set(int(CHUNK_GROUPS))]),
            forRange(part, int(0), groups, [
              call(tablesOf, { x, vectors: fields.vectors, tables, k, lastRow: i32.sub(rows, int(1)), tile: part }),
            ]),
            forRange(part, int(0), i32.div_u(i32.add(tiles, int(SPAN_MAX - 1)), int(SPAN_MAX)), [
              call(sumsOf, {
                ...{ codes, tables, scales: fields.scales, biases: fields.biases, y: fields.y, sums },
                ...{ groups, tiles, n, rows, part, span: int(SPAN_MAX) },
                isFirst: i32.eqz(first),
                isLast: i32.eq(i32.add(first, groups), inputs),
              }),
            ]),
            advance(x, 4 * inGroup * CHUNK_GROUPS),
            codes.set(elementAt(codes, i32.mul(groups, tiles), codebooks * TILE)),
          ],
          CHUNK_GROUPS,
        ),
      ];
    });
    return [entry, tablesOf, sumsOf];
  };
  return { key, build };
}

/** Codebooks as f32 [codebooks][inGroup][256], so that tables are built a vector of entries at a time. */
function transposed({ codebooks, inGroup }: AqlmForm, vectors: Float32Array): Float32Array {
  const result = new Float32Array(vectors.length);
  for (let c = 0; c < codebooks; c++)
    for (let e = 0; e < ENTRIES; e++)
      for (let j = 0; j < inGroup; j++)
        result[(c * inGroup + j) * ENTRIES + e] = vectors[(c * ENTRIES + e) * inGroup + j]!;
  return result;
}

/** Whether each thread works on four rows of its own: all have some, again and again. */
const haveOwnRows = (m: number, threads: number, width: Rows) => width === 4 && m >= 8 * threads;
/** Fours of rows of a phase: between phases others may have a turn, and a run may be ended. */
const PHASE_FOURS = 32;

/** Bytes of the parts of the scratch: tables, then floats as `constantsOf` gives them, then sums. */
function scratchParts(form: AqlmForm, width: Rows) {
  const { inputs } = formCounts(form);
  const outputs = outputBytes(form);
  return {
    outputs,
    tables: width * (width === 1 ? inputs : Math.min(inputs, CHUNK_GROUPS)) * form.codebooks * TABLE_BYTES,
    vectors: 4 * form.codebooks * ENTRIES * form.inGroup,
    sums: outputs * width,
  };
}

/** Where the parts of the scratch are: floats first, then tables and sums, of each thread or of all. */
function places(call: AqlmArgs, place: Placement, width: Rows) {
  const parts = scratchParts(call.codes.form, width);
  const vectors = place.scratch;
  const scales = vectors + parts.vectors;
  const biases = scales + parts.outputs;
  const tables = biases + parts.outputs;
  return {
    ...{ vectors, scales, biases, tables, sums: tables + parts.tables },
    ...{ x: place.read(call.x), codes: place.read(call.codes.bytes) + HEADER_BYTES, y: place.write(call.y) },
  };
}

/** Rows after rows, so that the tables of few are in memory; of four rows, chunk after chunk of the inputs. */
function sharedPhases(
  { m, codes: { form } }: AqlmArgs,
  at: ReturnType<typeof places>,
  threads: number,
  width: Rows,
): WasmPhase[] {
  const { n, k, codebooks, inGroup } = form;
  const { inputs } = formCounts(form);
  const { vectors, tables, scales, biases, sums } = at;
  const tiles = Math.ceil(n / TILE);
  const chunk = width === 1 ? inputs : CHUNK_GROUPS;
  const span = Math.min(SPAN_MAX, Math.ceil(tiles / (SPANS_PER_THREAD * threads)));
  const phases: WasmPhase[] = [];
  for (let row = 0; row < m; row += width)
    for (let first = 0; first < inputs; first += chunk) {
      const groups = Math.min(chunk, inputs - first);
      const rows = Math.min(width, m - row);
      const own = { x: at.x + 4 * (row * k + first * inGroup), vectors, tables };
      const build =
        width === 1
          ? { code: tableCode(form), args: tableBlock.encode(own) }
          : { code: fourTableCode(form), args: fourBlock.encode({ ...own, k, lastRow: rows - 1 }) };
      const args = sumBlock.encode({
        codes: at.codes + first * tiles * codebooks * TILE,
        ...{ tables, scales, biases, y: at.y + 4 * row * n, sums, groups, tiles, span, n, rows },
        isFirst: first === 0 ? 1 : 0,
        isLast: first + groups === inputs ? 1 : 0,
      });
      phases.push({ ...build, tiles: groups }, { code: sumCode(form, width), tiles: Math.ceil(tiles / span), args });
    }
  return phases;
}

/** Few phases, however many rows there are. */
function ownPhases({ m, codes: { form } }: AqlmArgs, at: ReturnType<typeof places>): WasmPhase[] {
  const { n, k } = form;
  const { inputs } = formCounts(form);
  const parts = scratchParts(form, 4);
  const { x, codes, vectors, scales, biases, y, tables: own } = at;
  const sizes = { ownBytes: parts.tables + parts.sums, tableBytes: parts.tables };
  const fours = Math.ceil(m / 4);
  const phases: WasmPhase[] = [];
  for (let firstFour = 0; firstFour < fours; firstFour += PHASE_FOURS) {
    const args = foursBlock.encode({
      ...{ x, codes, vectors, scales, biases, y, own, ...sizes },
      ...{ m, firstFour, n, k, inputs, tiles: Math.ceil(n / TILE) },
    });
    phases.push({ code: foursCode(form), tiles: Math.min(PHASE_FOURS, fours - firstFour), args });
  }
  return phases;
}

function aqlmStep(call: AqlmArgs, place: Placement, width: Rows): WasmStep {
  const at = places(call, place, width);
  const { form } = call.codes;
  const vectors = floatsOf(call.vectors);
  const codebooks = width === 1 ? transposed(form, vectors) : vectors;
  const constants = constantsOf(form, codebooks, floatsOf(call.scales), call.bias);
  const phases = haveOwnRows(call.m, place.threads, width)
    ? ownPhases(call, at)
    : sharedPhases(call, at, place.threads, width);
  return { phases: [constantPhase(at.vectors, constants), ...phases] };
}

const tablesWasm = (mStep: number, width: Rows): Kernel<AqlmArgs> =>
  wasmKernel({
    name: `aqlm_f32_c8_${mStep}x64x8_wasm_simd`,
    layouts: ["aqlm_tiles8"],
    bits: null,
    needs: ["simd128"],
    mStep,
    nStep: TILE,
    scratchBytes({ m, codes }, threads) {
      const { tables, vectors, outputs, sums } = scratchParts(codes.form, width);
      return vectors + 2 * outputs + (haveOwnRows(m, threads, width) ? threads : 1) * (tables + sums);
    },
    step: (call, place) => aqlmStep(call, place, width),
  });

/** Best first. */
export const aqlmTablesWasm: readonly Kernel<AqlmArgs>[] = [tablesWasm(2, 4), tablesWasm(1, 1)];
