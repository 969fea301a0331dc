/**
 * AQLM in WebAssembly, for codes of 8 bits: a table of x . vector for every group, codebook and entry, which threads
 * build group by group; then sums of looked up floats, tile by tile. Exact in float32.
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
  int,
  type KernelCode,
  kernelFunction,
  type Local,
  memory,
  type Placement,
  ptr,
  repeat,
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

const sumBlock = new ArgumentBlock({
  codes: "ptr",
  tables: "ptr",
  /** [outputs padded to tiles] */
  scales: "ptr",
  biases: "ptr",
  y: "ptr",
  /** For each thread: the sums of a tile. */
  threadSums: "ptr",
  groups: "i32",
  tiles: "i32",
  n: "i32",
});

/** Adds what `groups` groups of a tile look up to its sums, and moves on. */
function addGroups(groups: number, codebooks: number, at: Record<"codes" | "tables" | "sums", Local<"ptr">>): Body {
  const rows = groups * codebooks;
  const { codes, tables, sums } = at;
  const value = (lane: number): Expr<"f32"> => {
    let sum: Expr<"f32"> = f32.load(sums, 4 * lane);
    for (let row = 0; row < rows; row++) {
      const code = i32.load8_u(codes, row * TILE + lane);
      sum = f32.add(sum, f32.load(elementAt(tables, code, 4), row * TABLE_BYTES));
    }
    return sum;
  };
  return [
    Array.from({ length: TILE }, (_, lane) => f32.store(sums, value(lane), 4 * lane)),
    advance(codes, rows * TILE),
    advance(tables, rows * TABLE_BYTES),
  ];
}

/** Sums, scales and biases of a tile of outputs. */
function sumCode({ codebooks }: AqlmForm): KernelCode {
  const key = `aqlm_sums_${codebooks}`;
  const build = () => [
    kernelFunction(key, sumBlock, (fields, { tile, thread }, scope) => {
      const [sums, codes, tables, block] = (["sums", "at", "table", "block"] as const).map((n) =>
        scope.local("ptr", n),
      );
      const at = { sums: sums!, codes: codes!, tables: tables! };
      const [left, length, output, lane] = ["left", "length", "output", "lane"].map((n) => scope.local("i32", n));
      const rowBytes = codebooks * TILE;
      const pass = (groups: number): Body => [
        whileDo(i32.ge_u(length!, int(groups)), [
          addGroups(groups, codebooks, at),
          length!.set(i32.sub(length!, int(groups))),
        ]),
      ];
      const shorter = (a: Expr<"i32">): Body => [
        length!.set(int(BLOCK)),
        when(i32.lt_u(a, int(BLOCK)), [length!.set(a)]),
      ];
      const result = f32.add(
        f32.mul(f32.load(elementAt(at.sums, lane!, 4)), f32.load(elementAt(fields.scales, output!, 4))),
        f32.load(elementAt(fields.biases, output!, 4)),
      );
      // Lane 2 i is output i, lane 2 i + 1 output 32 + i.
      const place = i32.add(i32.shr_u(lane!, int(1)), i32.mul(i32.and(lane!, int(1)), int(TILE / 2)));
      return [
        at.sums.set(elementAt(fields.threadSums, thread, 4 * TILE)),
        block!.set(fields.codes),
        at.tables.set(fields.tables),
        left!.set(fields.groups),
        forRange(lane!, int(0), int(TILE), [f32.store(elementAt(at.sums, lane!, 4), float(0))]),
        whileDo(left!, [
          shorter(left!),
          at.codes.set(ptr.add(block!, ptr.mul(widen(i32.mul(tile, length!)), size(rowBytes)))),
          block!.set(ptr.add(block!, ptr.mul(widen(i32.mul(fields.tiles, length!)), size(rowBytes)))),
          left!.set(i32.sub(left!, length!)),
          pass(GROUPS_AT_ONCE),
          pass(1),
        ]),
        forRange(lane!, int(0), int(TILE), [
          output!.set(i32.add(i32.mul(tile, int(TILE)), place)),
          when(i32.lt_u(output!, fields.n), [f32.store(elementAt(fields.y, output!, 4), result)]),
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

/** Bytes of the parts of the scratch: tables of one row, then floats as `constantsOf` gives them, then threads' sums. */
function scratchParts({ n, ...form }: AqlmForm): { tables: number; vectors: number; outputs: number } {
  const { inputs } = formCounts({ n, ...form });
  return {
    tables: inputs * form.codebooks * TABLE_BYTES,
    vectors: 4 * form.codebooks * ENTRIES * form.inGroup,
    outputs: 4 * TILE * Math.ceil(n / TILE),
  };
}

/** Codebooks, then scales and biases of outputs padded to tiles. */
function constantsOf({ codes: { form }, vectors, scales, bias }: AqlmArgs): Float32Array {
  const parts = scratchParts(form);
  const floats = new Float32Array((parts.vectors + 2 * parts.outputs) / 4);
  floats.set(transposed(form, floatsOf(vectors)));
  floats.set(floatsOf(scales), parts.vectors / 4);
  if (bias) floats.set(bias, (parts.vectors + parts.outputs) / 4);
  return floats;
}

/** Row after row, so that one row's tables are in memory. */
function aqlmStep(call: AqlmArgs, place: Placement): WasmStep {
  const { m, x, codes, y } = call;
  const { form, bytes } = codes;
  const { n, k } = form;
  const { inputs } = formCounts(form);
  const parts = scratchParts(form);
  const tables = place.scratch;
  const vectors = tables + parts.tables;
  const scales = vectors + parts.vectors;
  const biases = scales + parts.outputs;
  const at = { x: place.read(x), codes: place.read(bytes) + HEADER_BYTES, y: place.write(y) };
  const tiles = Math.ceil(n / TILE);
  const phases = Array.from({ length: m }, (_, row): WasmPhase[] => {
    const tableArgs = { x: at.x + 4 * row * k, vectors, tables };
    const sumArgs = {
      ...{ codes: at.codes, tables, scales, biases, y: at.y + 4 * row * n },
      ...{ threadSums: biases + parts.outputs, groups: inputs, tiles, n },
    };
    return [
      { code: tableCode(form), tiles: inputs, args: tableBlock.encode(tableArgs) },
      { code: sumCode(form), tiles, args: sumBlock.encode(sumArgs) },
    ];
  });
  return {
    phases: [{ code: constantCode, tiles: 1, args: constantArgs(vectors, constantsOf(call)) }, ...phases.flat()],
  };
}

export const aqlmWasm: Kernel<AqlmArgs> = wasmKernel({
  name: "aqlm_f32_c8_1x64x8_wasm_simd",
  layouts: ["aqlm_tiles8"],
  bits: null,
  needs: ["simd128"],
  mStep: 1,
  nStep: TILE,
  scratchBytes({ codes }, threads) {
    const { tables, vectors, outputs } = scratchParts(codes.form);
    return tables + vectors + 2 * outputs + threads * 4 * TILE;
  },
  step: aqlmStep,
});
