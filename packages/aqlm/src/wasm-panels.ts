/**
 * AQLM in WebAssembly, for every form: 32 inputs of 16 outputs at a time become floats, which multiply all rows of x as
 * those of float linear layers do. Exact in float32.
 */
import type { Kernel } from "lowbit/extension";
import {
  advance,
  type Body,
  defineFunction,
  elementAt,
  type FloatPanelFields,
  f32x4,
  floatPanelBlock,
  floatPanelCode,
  floatThreadBytes,
  forRange,
  i32,
  int,
  type KernelCode,
  type Local,
  lanesOf,
  type PaddedRows,
  type Placement,
  paddedBytes,
  paddedLength,
  padRows,
  type Scope,
  select,
  shuffle4,
  storedBytes,
  UNIT,
  type UnpackCode,
  unpackParams,
  VectorConstants,
  v128,
  type WasmStep,
  wasmKernel,
  when,
} from "lowbit/wasm";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, type Floats, formName } from "./form.ts";
import { BLOCK, HEADER_BYTES, TILE } from "./layout.ts";

const PANEL_ROWS = 16;
/** Outputs that are decoded side by side, and inputs that are decoded at once: two vectors. */
const QUAD = 4;
const PART = 8;
const TILES_PER_THREAD = 8;

type FloatType = "f16" | "f32";
const typeOf = (data: Floats): FloatType => (data instanceof Uint16Array ? "f16" : "f32");

/** What code is generated for. */
interface Variant extends Pick<AqlmForm, "codebooks" | "bits" | "inGroup" | "outGroup"> {
  readonly vectorType: FloatType;
  readonly scaleType: FloatType;
}

/** The panel's arguments. `extra` is the address of the codebooks, `stride` that of the scales. */
interface Decoding {
  readonly variant: Variant;
  readonly fields: FloatPanelFields;
  readonly constants: VectorConstants;
}

/** An output that is decoded. */
interface Output {
  readonly tile: Local<"i32">;
  /** Its place in a row of codes. */
  readonly lane: Local<"i32">;
  /** Its values of vector 0 of codebook 0. */
  readonly vector: Local<"ptr">;
  readonly scale: Local<"v128">;
  readonly codes: Local<"ptr">;
  readonly values: readonly Local<"v128">[];
}

function outputLocals(scope: Scope, i: number): Output {
  return {
    tile: scope.local("i32", `tile${i}`),
    lane: scope.local("i32", `lane${i}`),
    vector: scope.local("ptr", `vector${i}`),
    scale: scope.local("v128", `scale${i}`),
    codes: scope.local("ptr", `codes${i}`),
    values: scope.localArray("v128", `values${i}_`, PART / 4),
  };
}

/** Finds row `first + i` of the weights, or the last one. */
function findOutput({ variant, fields, constants }: Decoding, first: Local<"i32">, i: number, to: Output): Body {
  const { inGroup, outGroup, vectorType, scaleType } = variant;
  const { tile, lane } = to;
  const row = () => i32.add(first, int(i));
  const rowOfOutput = i32.mul(i32.rem_u(lane, int(outGroup)), int(inGroup));
  const scale = lanesOf(1, constants).load(elementAt(fields.stride, tile, storedBytes[scaleType]), scaleType);
  // Outputs 0, 32, 1, 33, …: twice the place, less 63 in the upper half.
  const place = () => i32.and(tile, int(TILE - 1));
  const upper = i32.mul(i32.ge_u(place(), int(TILE / 2)), int(TILE - 1));
  return [
    lane.set(select(i32.lt_u(row(), fields.n), row(), i32.sub(fields.n, int(1)))),
    to.vector.set(elementAt(fields.extra, rowOfOutput, storedBytes[vectorType])),
    tile.set(i32.div_u(lane, int(outGroup))),
    to.scale.set(scale),
    to.scale.set(shuffle4(to.scale, to.scale, [0, 0, 0, 0])),
    lane.set(i32.sub(i32.mul(place(), int(2)), upper)),
    tile.set(i32.div_u(tile, int(TILE))),
  ];
}

/** Sums vectors of all codebooks, eight inputs from value `start` of each on. */
function sumVectors({ variant, constants }: Decoding, start: Local<"i32">, output: Output): Body {
  const { codebooks, bits, inGroup, outGroup, vectorType } = variant;
  const bytes = storedBytes[vectorType];
  const length = inGroup * outGroup * bytes;
  const lanes = lanesOf(4, constants);
  const { codes, values, scale } = output;
  const books = Array.from({ length: codebooks }, (_, book) => {
    const code = bits <= 8 ? i32.load8_u(codes, book * TILE) : i32.load16_u(codes, 2 * book * TILE);
    const masked = bits % 8 === 0 ? code : i32.and(code, int(2 ** bits - 1));
    const vector = elementAt(elementAt(output.vector, masked, length), start, bytes);
    const offset = book * 2 ** bits * length;
    return values.map((value, half) =>
      value.set(f32x4.add(value, lanes.load(vector, vectorType, offset + 4 * half * bytes))),
    );
  });
  return [books, values.map((value) => value.set(f32x4.mul(value, scale)))];
}

/** Four values of four outputs, as the columns that panels want: [4 inputs][16 outputs]. */
function storeColumns([a, b, c, d]: readonly Local<"v128">[], to: Local<"ptr">, offset: number): Body {
  const column = (low: readonly number[], lane: number) =>
    shuffle4(shuffle4(a!, b!, low), shuffle4(c!, d!, low), [2 * lane, 2 * lane + 1, 4 + 2 * lane, 5 + 2 * lane]);
  const [low, high] = [
    [0, 4, 1, 5],
    [2, 6, 3, 7],
  ];
  const columns = [column(low!, 0), column(low!, 1), column(high!, 0), column(high!, 1)];
  return columns.map((value, i) => v128.store(to, value, offset + 4 * PANEL_ROWS * i));
}

/** Decodes 32 inputs of a panel, four outputs and eight inputs at a time; inputs past k are 0. */
function decodeCode(name: string, variant: Variant): UnpackCode {
  const { codebooks, bits, inGroup, outGroup } = variant;
  return defineFunction(name, unpackParams, ({ args, panel, unit, to }, scope) => {
    const { fields, statements } = floatPanelBlock.load(scope, args);
    const constants = new VectorConstants(scope);
    const decoding: Decoding = { variant, fields, constants };
    const outputs = Array.from({ length: QUAD }, (_, i) => outputLocals(scope, i));
    const number = (local: string) => scope.local("i32", local);
    const [quad, part, row, start] = [number("quad"), number("part"), number("row"), number("start")];
    const [tiles, groups, group] = [number("tiles"), number("groups"), number("group")];
    const [rowOfCodes, length] = [number("row_of_codes"), number("length")];
    const target = scope.local("ptr", "target");
    // Rows of codes lie by blocks of groups, tiles and groups.
    const findCodes = [
      rowOfCodes.set(i32.and(group, int(-BLOCK))),
      length.set(i32.sub(groups, rowOfCodes)),
      when(i32.lt_u(int(BLOCK), length), [length.set(int(BLOCK))]),
      rowOfCodes.set(i32.add(i32.mul(rowOfCodes, tiles), i32.and(group, int(BLOCK - 1)))),
      outputs.map(({ codes, tile, lane }) => {
        const first = i32.mul(i32.add(rowOfCodes, i32.mul(tile, length)), int(codebooks * TILE));
        return codes.set(elementAt(fields.weights, i32.add(first, lane), bits <= 8 ? 1 : 2));
      }),
    ];
    const input = () => i32.add(i32.mul(unit, int(UNIT)), i32.mul(part, int(PART)));
    const body: Body = [
      tiles.set(i32.div_u(i32.add(i32.div_u(fields.n, int(outGroup)), int(TILE - 1)), int(TILE))),
      groups.set(i32.div_u(fields.k, int(inGroup))),
      forRange(quad, int(0), int(PANEL_ROWS / QUAD), [
        row.set(i32.add(i32.mul(panel, int(PANEL_ROWS)), i32.mul(quad, int(QUAD)))),
        outputs.map((output, i) => findOutput(decoding, row, i, output)),
        target.set(elementAt(to, quad, 4 * QUAD)),
        forRange(part, int(0), int(UNIT / PART), [
          group.set(i32.div_u(input(), int(inGroup))),
          start.set(i32.rem_u(input(), int(inGroup))),
          outputs.map(({ values }) => values.map((value) => value.set(constants.words(0)))),
          when(i32.lt_u(group, groups), [findCodes, outputs.map((output) => sumVectors(decoding, start, output))]),
          [0, 1].map((half) => {
            const four = outputs.map(({ values }) => values[half]!);
            return storeColumns(four, target, 4 * PANEL_ROWS * 4 * half);
          }),
          advance(target, 4 * PANEL_ROWS * PART),
        ]),
      ]),
    ];
    return [statements, constants.prepare, body];
  });
}

function panelCode(variant: Variant, hasBias: boolean): KernelCode {
  const { inGroup, outGroup, vectorType, scaleType } = variant;
  const form = formName(variant);
  return floatPanelCode({
    key: `aqlm_panels_${form}_${inGroup}_${outGroup}_${vectorType}_${scaleType}${hasBias ? "_bias" : ""}`,
    rows: PANEL_ROWS,
    hasBias,
    hasWholeBiases: false,
    unpack: (name) => decodeCode(name, variant),
  });
}

function rowsOf({ m, codes }: AqlmArgs): PaddedRows {
  const { k } = codes.form;
  return { m, k, groupSize: k, groupLength: Math.ceil(k / UNIT) * UNIT };
}

function step(call: AqlmArgs, place: Placement): WasmStep {
  const { m, codes, vectors, scales, bias, y } = call;
  const { n, k, codebooks, bits, inGroup, outGroup } = codes.form;
  const rows = rowsOf(call);
  const { phases, x } = padRows(rows, place.read(call.x), place.scratch);
  const panelCount = Math.ceil(n / PANEL_ROWS);
  const perTile = Math.ceil(panelCount / (TILES_PER_THREAD * place.threads));
  const args = floatPanelBlock.encode({
    weights: place.read(codes.bytes) + HEADER_BYTES,
    stride: place.read(scales),
    extra: place.read(vectors),
    x,
    bias: bias ? place.read(bias) : 0,
    biasStride: 4 * PANEL_ROWS,
    y: place.write(y),
    threadScratch: place.scratch + paddedBytes(rows),
    threadBytes: floatThreadBytes(PANEL_ROWS, m),
    ...{ m, n, k, panelCount, perTile },
    units: paddedLength(rows) / UNIT,
  });
  const types = { vectorType: typeOf(vectors), scaleType: typeOf(scales) };
  const code = panelCode({ codebooks, bits, inGroup, outGroup, ...types }, bias !== null);
  return { phases: [...phases, { code, tiles: Math.ceil(panelCount / perTile), args }] };
}

export const aqlmPanelsWasm: Kernel<AqlmArgs> = wasmKernel({
  name: "aqlm_f32_cx_1x16x32_wasm_simd",
  layouts: ["aqlm_tiles"],
  bits: null,
  needs: ["simd128"],
  mStep: 1,
  nStep: PANEL_ROWS,
  scratchBytes: (call, threads) => paddedBytes(rowsOf(call)) + threads * floatThreadBytes(PANEL_ROWS, call.m),
  step,
});
