/**
 * Linear layers with float activations: y [m, n] = x [m, k] times weights [n, k] transposed. 32 columns of a panel of weights
 * at a time are unpacked to floats [32, rows] and multiplied by all rows of activations, whose sums are in thread scratch. The
 * caller provides the unpacking. A tile is a range of panels.
 */

import type { FunctionCode } from "../assembler/expression.ts";
import { type Body, call, type Expr, type Local, when, widen } from "../assembler/expression.ts";
import { f32x4, i32, int, memory, ptr, size, v128 } from "../assembler/instructions.ts";
import { defineFunction } from "../assembler/module.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction, type WasmPhase } from "../kernel-code.ts";
import { lanesOf } from "./lanes.ts";
import { advance, elementAt, forRange, repeat } from "./loops.ts";
import { VectorConstants } from "./weight-fields.ts";

/** Columns (k) that are unpacked and multiplied at a time. */
export const UNIT = 32;
/** Rows of activations, and vectors of weight rows, that the inner loop multiplies at once. */
const X_ROWS = 4;
const QUADS_AT_ONCE = 2;
/** Columns (k) in one iteration of the inner loop. */
const UNROLLED = 4;

/** Argument block of panel kernels with float activations. */
export const floatPanelBlock = new ArgumentBlock({
  weights: "ptr",
  /** Bytes of a panel, or of a row of weights. */
  stride: "ptr",
  /** A further argument for the unpacking code. */
  extra: "ptr",
  /** Activations, float32 [m, units * 32]. */
  x: "ptr",
  bias: "ptr",
  /** Bytes between the biases of consecutive panels. */
  biasStride: "ptr",
  y: "ptr",
  threadScratch: "ptr",
  threadBytes: "ptr",
  m: "i32",
  n: "i32",
  k: "i32",
  units: "i32",
  panelCount: "i32",
  perTile: "i32",
});
/** Locals with the arguments of `floatPanelCode`. */
export type FloatPanelFields = FieldsOf<typeof floatPanelBlock>;

/** Parameters of functions that unpack a unit of a panel to floats [32, rows]. */
export const unpackParams = { args: "ptr", panel: "i32", unit: "i32", to: "ptr" } as const;
/** A function that unpacks one unit of a panel of weights to floats. */
export type UnpackCode = FunctionCode<typeof unpackParams, null>;

/** Weights in panels of rows, as `floatPanelCode` needs them: rows, biases, and the unpacking of a unit. */
export interface FloatPanels {
  /** Key of the code for such panels. */
  readonly key: string;
  /** Rows of a panel, a multiple of 8. */
  readonly rows: number;
  /** Whether a bias follows the weights of a panel. */
  readonly hasBias: boolean;
  /** Whether all biases of a panel may be read, or only those of existing rows. */
  readonly hasWholeBiases: boolean;
  /** Makes the function that unpacks a unit to floats. */
  unpack(name: string): UnpackCode;
}

/** Bytes of thread scratch: floats of a unit [32, rows], then sums [m, rows]. */
export function floatThreadBytes(rows: number, m: number): number {
  return 4 * rows * (UNIT + m);
}

/** Code that multiplies float activations [m, k] by weights that are unpacked to floats, panel by panel. */
export function floatPanelCode(panels: FloatPanels): KernelCode {
  return { key: panels.key, build: () => floatPanelFunctions(panels) };
}

function floatPanelFunctions(panels: FloatPanels): FunctionCode[] {
  const { key, rows } = panels;
  const unpack = panels.unpack(`${key}_unpack`);
  const multiply = Array.from({ length: X_ROWS }, (_, i) => multiplyCode(`${key}_m${i + 1}`, rows, i + 1));
  return [
    kernelFunction(key, floatPanelBlock, (fields, { args, tile, thread }, scope) => {
      const { perTile, panelCount, threadScratch, threadBytes, units, m } = fields;
      const panel = scope.local("i32", "panel");
      const last = scope.local("i32", "last");
      const unit = scope.local("i32", "unit");
      const floats = scope.local("ptr", "floats");
      const sums = scope.local("ptr", "sums");
      const left = scope.local("i32", "left_bytes");
      const constants = new VectorConstants(scope);
      const local = { panel, unit, floats, sums, left, row: scope.local("i32", "row"), at: scope.local("ptr", "at") };
      const x = scope.local("ptr", "x_unit");
      return [
        constants.prepare,
        panel.set(i32.mul(tile, perTile)),
        last.set(i32.add(panel, perTile)),
        when(i32.lt_u(panelCount, last), [last.set(panelCount)]),
        floats.set(elementAt(threadScratch, thread, threadBytes)),
        sums.set(ptr.add(floats, size(4 * rows * UNIT))),
        forRange(panel, panel, last, [
          left.set(i32.mul(i32.sub(fields.n, i32.mul(panel, int(rows))), int(4))),
          when(i32.lt_u(int(4 * rows), left), [left.set(int(4 * rows))]),
          beginSums(panels, fields, local, constants),
          x.set(fields.x),
          forRange(unit, int(0), units, [
            call(unpack, { args, panel, unit, to: floats }),
            multiplyRows(multiply, rows, { x, m, units, ...local }),
            advance(x, 4 * UNIT),
          ]),
          storeSums(rows, fields, local),
        ]),
      ];
    }),
    unpack,
    ...multiply,
  ];
}

interface PanelLocals {
  readonly panel: Local<"i32">;
  readonly floats: Local<"ptr">;
  readonly sums: Local<"ptr">;
  /** Bytes of the panel's results that exist in a row of y. */
  readonly left: Local<"i32">;
  readonly row: Local<"i32">;
  readonly at: Local<"ptr">;
}

/** Initializes the sums with the biases, or 0. */
function beginSums(
  { rows, hasBias, hasWholeBiases }: FloatPanels,
  fields: FloatPanelFields,
  { panel, sums, left, row, at }: PanelLocals,
  constants: VectorConstants,
): Body {
  const bias = elementAt(fields.bias, panel, fields.biasStride);
  const vectors = Array.from({ length: rows / 4 }, (_, i) => i);
  const begin = hasBias
    ? [memory.copy(at, bias, hasWholeBiases ? size(4 * rows) : widen(left))]
    : vectors.map((i) => v128.store(at, constants.words(0), 16 * i));
  return [at.set(sums), forRange(row, int(0), fields.m, [begin, advance(at, 4 * rows)])];
}

function storeSums(rows: number, fields: FloatPanelFields, { panel, sums, left, row, at }: PanelLocals): Body {
  const column = elementAt(fields.y, i32.mul(panel, int(rows)), 4);
  const target = ptr.add(column, ptr.mul(widen(row), ptr.mul(widen(fields.n), size(4))));
  return [at.set(sums), forRange(row, int(0), fields.m, [memory.copy(target, at, widen(left)), advance(at, 4 * rows)])];
}

interface Multiplied extends PanelLocals {
  /** Address of the unit's activations in the first row. */
  readonly x: Local<"ptr">;
  readonly m: Local<"i32">;
  readonly units: Local<"i32">;
}

/** Adds a unit's products to the sums of all rows, four rows at a time. */
function multiplyRows(
  multiply: readonly MultiplyCode[],
  rows: number,
  { x, m, units, floats, sums, row }: Multiplied,
): Body {
  const xRow = elementAt(x, i32.mul(row, units), 4 * UNIT);
  const given = { x: xRow, xBytes: i32.mul(units, int(4 * UNIT)), floats, sums: elementAt(sums, row, 4 * rows) };
  const run = (count: number) => call(multiply[count - 1]!, given);
  const left = i32.sub(m, row);
  return [
    row.set(int(0)),
    forRange(row, row, i32.sub(m, i32.rem_u(m, int(X_ROWS))), [run(X_ROWS)], X_ROWS),
    [1, 2, 3].map((count) => when(i32.eq(left, int(count)), [run(count), row.set(m)])),
  ];
}

const multiplyParams = { x: "ptr", xBytes: "i32", floats: "ptr", sums: "ptr" } as const;
type MultiplyCode = FunctionCode<typeof multiplyParams, null>;

/** sums [count, rows] += x [count, 32] * floats [32, rows] */
function multiplyCode(name: string, rows: number, count: number): MultiplyCode {
  return defineFunction(name, multiplyParams, ({ x, xBytes, floats, sums }, scope) => {
    const xs = [x, ...scope.localArray("ptr", "x", count - 1)];
    const totals = scope.localArray("v128", "total", count * QUADS_AT_ONCE);
    const weights = scope.localArray("v128", "weight", QUADS_AT_ONCE);
    const splat = scope.local("v128", "splat");
    const from = scope.local("ptr", "from");
    const turns = scope.local("i32", "turns");
    const offset = (t: number, q: number) => 4 * rows * t + 16 * q;
    const step = (i: number): Body => [
      weights.map((weight, q) => weight.set(v128.load(from, 4 * rows * i + 16 * q))),
      xs.map((at, t) => [
        splat.set(v128.load32_splat(at, 4 * i)),
        weights.map((weight, q) => add(totals[t * QUADS_AT_ONCE + q]!, f32x4.mul(splat, weight))),
      ]),
    ];
    const both = Array.from({ length: rows / (4 * QUADS_AT_ONCE) }, (_, part) => {
      const first = part * QUADS_AT_ONCE;
      const each = (visit: (total: Local<"v128">, place: number) => Body[number]) =>
        totals.map((total, i) => visit(total, offset(Math.floor(i / QUADS_AT_ONCE), first + (i % QUADS_AT_ONCE))));
      return [
        from.set(ptr.add(floats, size(16 * first))),
        each((total, place) => total.set(v128.load(sums, place))),
        repeat(turns, int(UNIT / UNROLLED), [
          Array.from({ length: UNROLLED }, (_, i) => step(i)),
          advance(from, 4 * rows * UNROLLED),
          xs.map((at) => advance(at, 4 * UNROLLED)),
        ]),
        xs.map((at) => advance(at, -4 * UNIT)),
        each((total, place) => v128.store(sums, total, place)),
      ];
    });
    return [xs.slice(1).map((at, t) => at.set(ptr.add(xs[t]!, widen(xBytes)))), both];
  });
}

function add(total: Local<"v128">, value: Expr<"v128">): Body[number] {
  return total.set(f32x4.add(total, value));
}

const padBlock = new ArgumentBlock({ x: "ptr", to: "ptr", k: "i32", groupSize: "i32", groupLength: "i32" });

/** Copies rows, padding each group with zeros to its stored length. A tile is a row. */
const padCode: KernelCode = {
  key: "pad_rows",
  build: () => [
    kernelFunction("pad_rows", padBlock, ({ x, to, k, groupSize, groupLength }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const lanes = lanesOf(1, constants);
      const left = scope.local("i32", "left");
      const count = scope.local("i32", "count");
      const i = scope.local("i32", "i");
      const groups = i32.div_u(i32.sub(i32.add(k, groupSize), int(1)), groupSize);
      return [
        constants.prepare,
        x.set(elementAt(x, i32.mul(tile, k), 4)),
        to.set(elementAt(to, i32.mul(tile, i32.mul(groups, groupLength)), 4)),
        left.set(k),
        repeat(scope.local("i32", "group"), groups, [
          count.set(groupSize),
          when(i32.lt_u(left, count), [count.set(left)]),
          left.set(i32.sub(left, count)),
          memory.copy(to, x, widen(i32.mul(count, int(4)))),
          x.set(elementAt(x, count, 4)),
          to.set(elementAt(to, count, 4)),
          forRange(i, count, groupLength, [lanes.store(to, constants.words(0)), advance(to, 4)]),
        ]),
      ];
    }),
  ],
};

/** Rows of activations whose groups are padded to the panels' stored length. */
export interface PaddedRows {
  /** Number of rows. */
  readonly m: number;
  /** Elements of a row. */
  readonly k: number;
  /** Elements of a group. */
  readonly groupSize: number;
  /** Floats of a padded group. */
  readonly groupLength: number;
}

const groupsOf = ({ k, groupSize }: PaddedRows) => Math.ceil(k / groupSize);

/** Floats of a padded row. */
export function paddedLength(rows: PaddedRows): number {
  return groupsOf(rows) * rows.groupLength;
}

/** Scratch bytes of padded rows: 0 where no padding is needed. */
export function paddedBytes(rows: PaddedRows): number {
  return paddedLength(rows) === rows.k ? 0 : Math.ceil((4 * rows.m * paddedLength(rows)) / 64) * 64;
}

/** The phase that pads rows, if needed, and the address of the padded rows. */
export function padRows(rows: PaddedRows, x: number, scratch: number): { phases: WasmPhase[]; x: number } {
  if (paddedBytes(rows) === 0) return { phases: [], x };
  const { m, k, groupSize, groupLength } = rows;
  const args = padBlock.encode({ x, to: scratch, k, groupSize, groupLength });
  return { phases: [{ code: padCode, tiles: m, args }], x: scratch };
}
