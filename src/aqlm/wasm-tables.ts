/**
 * AQLM in WebAssembly, for codes of 8 bits: a table of x . vector for every group, codebook and entry, which threads
 * build group by group; then sums of looked up floats, tile by tile. Exact in float32. Four rows of x share tables of
 * vectors, with a lane for each row, and the reading of codes.
 */
import type { Kernel } from "../extension/index.ts";
import {
  ArgumentBlock,
  advance,
  type Body,
  type Expr,
  elementAt,
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
  memory,
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
} from "../extension/wasm.ts";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, formCounts } from "./form.ts";
import { BLOCK, HEADER_BYTES, TILE } from "./layout.ts";
import { floatsOf } from "./reference.ts";

const ENTRIES = 256;
const TABLE_BYTES = 4 * ENTRIES;
/** Groups whose tables for four rows are in memory at once: what second-level caches hold. */
const CHUNK_GROUPS = 2 * BLOCK;
/** Rows of x that share a table. */
type Rows = 1 | 4;
/** Vectors of four entries whose sums stay in variables. */
const ENTRY_VECTORS = 8;
/** Groups whose tables are looked up in one pass over the sums. */
const GROUPS_AT_ONCE = 4;

/** In front of floats that come with the arguments: where they go, and how many bytes. */
const constantBlock = new ArgumentBlock({ to: "ptr", bytes: "ptr" });
const CONSTANT_OFFSET = 16;

/** Copies the floats behind its arguments: codebooks, scales and biases, which the program has in other types. */
const constantCode: KernelCode = {
  key: "aqlm_constants",
  build: () => [
    kernelFunction("aqlm_constants", constantBlock, ({ to, bytes }, { args }) => [
      memory.copy(to, ptr.add(args, size(CONSTANT_OFFSET)), bytes),
    ]),
  ],
};

function constantArgs(to: number, floats: Float32Array): Uint8Array {
  const head = constantBlock.encode({ to, bytes: floats.byteLength });
  const bytes = new Uint8Array(CONSTANT_OFFSET + floats.byteLength);
  bytes.set(head);
  bytes.set(new Uint8Array(floats.buffer), CONSTANT_OFFSET);
  return bytes;
}

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

const fourBlock = new ArgumentBlock({ x: "ptr", vectors: "ptr", tables: "ptr", k: "i32", lastRow: "i32" });

/** Tables of one group of inputs for four rows, the last one again where there are fewer. `vectors` are as stored. */
function fourTableCode({ codebooks, inGroup }: AqlmForm): KernelCode {
  const key = `aqlm_four_tables_${codebooks}_${inGroup}`;
  const build = () => [
    kernelFunction(key, fourBlock, ({ x, vectors, tables, k, lastRow }, { tile }, scope) => {
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
          inputs
            .slice(1)
            .map((j) => sum.set(f32x4.add(sum, f32x4.mul(columns[j]!, v128.load32_splat(vectors, 4 * j))))),
          v128.store(tables, sum),
          advance(vectors, 4 * inGroup),
          advance(tables, 16),
        ]),
      ];
    }),
  ];
  return { key, build };
}

const sumBlock = new ArgumentBlock({
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
  n: "i32",
  /** Rows that y has, of four. */
  rows: "i32",
  /** Whether these groups are the first, and the last ones. */
  isFirst: "i32",
  isLast: "i32",
});

/** Adds what `groups` groups of a tile look up to its sums, and moves on. */
function addGroups(
  groups: number,
  codebooks: number,
  width: Rows,
  at: Record<"codes" | "tables" | "sums", Local<"ptr">>,
): Body {
  const rows = groups * codebooks;
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

/** Sums of a tile of outputs over some groups; behind the last ones, scales and biases. */
function sumCode({ codebooks }: AqlmForm, width: Rows): KernelCode {
  const key = `aqlm_sums_${codebooks}_${width}`;
  const build = () => [
    kernelFunction(key, sumBlock, (fields, { tile }, scope) => {
      const pointer = (name: string) => scope.local("ptr", name);
      const [codes, tables, block] = [pointer("at"), pointer("table"), pointer("block")];
      const at = { sums: pointer("tile_sums"), codes, tables };
      const number = (name: string) => scope.local("i32", name);
      const [left, length, output, lane, row] = [
        number("left"),
        number("length"),
        number("output"),
        number("lane"),
        number("row"),
      ];
      const rowBytes = codebooks * TILE;
      const pass = (groups: number): Body => [
        whileDo(i32.ge_u(length, int(groups)), [
          addGroups(groups, codebooks, width, at),
          length.set(i32.sub(length, int(groups))),
        ]),
      ];
      const sum = f32.load(elementAt(at.sums, i32.add(i32.mul(lane, int(width)), row), 4));
      const scaled = f32.mul(sum, f32.load(elementAt(fields.scales, output, 4)));
      const result = f32.add(scaled, f32.load(elementAt(fields.biases, output, 4)));
      // Lane 2 i is output i, lane 2 i + 1 output 32 + i.
      const place = i32.add(i32.shr_u(lane, int(1)), i32.mul(i32.and(lane, int(1)), int(TILE / 2)));
      const target = elementAt(fields.y, i32.add(i32.mul(row, fields.n), output), 4);
      return [
        at.sums.set(elementAt(fields.sums, tile, 4 * width * TILE)),
        block.set(fields.codes),
        tables.set(fields.tables),
        left.set(fields.groups),
        when(fields.isFirst, [
          forRange(lane, int(0), int(width * TILE), [f32.store(elementAt(at.sums, lane, 4), float(0))]),
        ]),
        whileDo(left, [
          length.set(int(BLOCK)),
          when(i32.lt_u(left, int(BLOCK)), [length.set(left)]),
          codes.set(ptr.add(block, ptr.mul(widen(i32.mul(tile, length)), size(rowBytes)))),
          block.set(ptr.add(block, ptr.mul(widen(i32.mul(fields.tiles, length)), size(rowBytes)))),
          left.set(i32.sub(left, length)),
          pass(GROUPS_AT_ONCE),
          pass(1),
        ]),
        when(fields.isLast, [
          forRange(lane, int(0), int(TILE), [
            output.set(i32.add(i32.mul(tile, int(TILE)), place)),
            when(i32.lt_u(output, fields.n), [forRange(row, int(0), fields.rows, [f32.store(target, result)])]),
          ]),
        ]),
      ];
    }),
  ];
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

/** Bytes of the parts of the scratch: tables, then floats as `constantsOf` gives them, then sums. */
function scratchParts(form: AqlmForm, width: Rows) {
  const { inputs } = formCounts(form);
  const outputs = TILE * Math.ceil(form.n / TILE);
  return {
    tables: width * (width === 1 ? inputs : Math.min(inputs, CHUNK_GROUPS)) * form.codebooks * TABLE_BYTES,
    vectors: 4 * form.codebooks * ENTRIES * form.inGroup,
    outputs: 4 * outputs,
    sums: 4 * outputs * width,
  };
}

/** Codebooks, then scales and biases of outputs padded to tiles. */
function constantsOf({ codes: { form }, vectors, scales, bias }: AqlmArgs, width: Rows): Float32Array {
  const parts = scratchParts(form, width);
  const floats = new Float32Array((parts.vectors + 2 * parts.outputs) / 4);
  floats.set(width === 1 ? transposed(form, floatsOf(vectors)) : floatsOf(vectors));
  floats.set(floatsOf(scales), parts.vectors / 4);
  if (bias) floats.set(bias, (parts.vectors + parts.outputs) / 4);
  return floats;
}

/** Rows after rows, so that the tables of few are in memory; of four rows, chunk after chunk of the inputs. */
function aqlmStep(call: AqlmArgs, place: Placement, width: Rows): WasmStep {
  const { m, codes } = call;
  const { form } = codes;
  const { n, k, codebooks, inGroup } = form;
  const { inputs } = formCounts(form);
  const parts = scratchParts(form, width);
  const tables = place.scratch;
  const vectors = tables + parts.tables;
  const scales = vectors + parts.vectors;
  const biases = scales + parts.outputs;
  const at = { x: place.read(call.x), codes: place.read(codes.bytes) + HEADER_BYTES, y: place.write(call.y) };
  const tiles = Math.ceil(n / TILE);
  const chunk = width === 1 ? inputs : CHUNK_GROUPS;
  const phases: WasmPhase[] = [{ code: constantCode, tiles: 1, args: constantArgs(vectors, constantsOf(call, width)) }];
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
        ...{ tables, scales, biases, y: at.y + 4 * row * n, sums: biases + parts.outputs, groups, tiles, n, rows },
        isFirst: first === 0 ? 1 : 0,
        isLast: first + groups === inputs ? 1 : 0,
      });
      phases.push({ ...build, tiles: groups }, { code: sumCode(form, width), tiles, args });
    }
  return { phases };
}

const tablesWasm = (width: Rows): Kernel<AqlmArgs> =>
  wasmKernel({
    name: `aqlm_f32_c8_${width}x64x8_wasm_simd`,
    layouts: ["aqlm_tiles8"],
    bits: null,
    needs: ["simd128"],
    mStep: width,
    nStep: TILE,
    scratchBytes({ codes }) {
      const { tables, vectors, outputs, sums } = scratchParts(codes.form, width);
      return tables + vectors + 2 * outputs + sums;
    },
    step: (call, place) => aqlmStep(call, place, width),
  });

/** Best first. */
export const aqlmTablesWasm: readonly Kernel<AqlmArgs>[] = [tablesWasm(4), tablesWasm(1)];
