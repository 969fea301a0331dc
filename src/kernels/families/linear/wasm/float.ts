/** Float linear kernels: dot products for a few rows of activations, panels of transposed weights for more. */

import type { Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, select, when, widen } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import { defineFunction, type Scope } from "../../../wasm/assembler/module.ts";
import {
  floatPanelBlock,
  floatPanelCode,
  floatThreadBytes,
  type PaddedRows,
  paddedBytes,
  paddedLength,
  padRows,
  UNIT,
  type UnpackCode,
  unpackParams,
} from "../../../wasm/generate/float-panels.ts";
import { eightHalves } from "../../../wasm/generate/halves.ts";
import { forLanes, lanesOf, type StoredType, storedBytes, transposed } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { FloatLinearArgs } from "../fields.ts";

const PANEL_ROWS = 16;
const TILES_PER_THREAD = 8;
/** Rows of weights whose dot products are computed at once: two vectors of sums hide the latency of a multiply-add. */
const DOTS = 8;
/** Rows of weights that are transposed together. */
const QUAD = 4;
const DOTS_PER_TILE = 64;
/** Most rows of activations that share transposed weights. */
const DOT_X_ROWS = 3;

/** Row first + i, or the last row if there is none such. */
function clamped(first: Local<"i32">, i: number, count: Local<"i32">): Expr<"i32"> {
  const index = () => i32.add(first, int(i));
  return select(i32.lt_u(index(), count), index(), i32.sub(count, int(1)));
}

const dotBlock = new ArgumentBlock({
  weights: "ptr",
  x: "ptr",
  bias: "ptr",
  y: "ptr",
  n: "i32",
  k: "i32",
});

/**
 * Dot products for `m` rows of activations. A tile is a range of rows of weights; an incomplete last eight repeats the last
 * row. Sums start with the bias and go k by k, as those of panels do, so that a row's results do not depend on the number of
 * rows.
 */
function dotCode(type: StoredType, hasBias: boolean, m: number): KernelCode {
  const key = `linear_dot_${type}_m${m}${hasBias ? "_bias" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, dotBlock, ({ weights, x, bias, y, n, k }, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const column = scope.local("i32", "column");
        const end = scope.local("i32", "end");
        const xs = scope.localArray("ptr", "x_row", m);
        const rows = scope.localArray("ptr", "weights", DOTS);
        const sums = Array.from({ length: DOTS / QUAD }, (_, q) => scope.localArray("v128", `sum${q}_`, m));
        const loaded = scope.localArray("v128", "loaded", DOTS);
        const weight = scope.local("v128", "weight");
        const index = (i: number) => clamped(column, i, n);
        const lanesOfQuad = (q: number, visit: (column: Expr<"i32">, lane: number) => Body[number]) =>
          [0, 1, 2, 3].map((lane) => visit(index(QUAD * q + lane), lane));
        const pointers = [...xs.map((at) => [at] as const), ...rows.map((pointer) => [pointer, type] as const)];
        const products = forLanes({ scope, constants, count: k, pointers }, (lanes) => [
          loaded.map((local, i) => local.set(lanes.load(rows[i]!, type))),
          sums.map((quad, q) =>
            transposed(loaded.slice(QUAD * q, QUAD * (q + 1)))
              .slice(0, lanes.count)
              .map((values, j) => [
                weight.set(values),
                quad.map((sum, t) => sum.set(f32x4.add(sum, f32x4.mul(v128.load32_splat(xs[t]!, 4 * j), weight)))),
              ]),
          ),
        ]);
        const begin = sums.map(([first, ...others], q) => [
          first!.set(constants.words(0)),
          hasBias
            ? lanesOfQuad(q, (at, lane) =>
                first!.set(f32x4.replace_lane(first!, f32.load(elementAt(bias, at, 4)), lane)),
              )
            : [],
          others.map((sum) => sum.set(first!)),
        ]);
        const store = sums.map((quad, q) =>
          quad.map((sum, t) =>
            lanesOfQuad(q, (at, lane) =>
              f32.store(elementAt(y, i32.add(i32.mul(int(t), n), at), 4), f32x4.extract_lane(sum, lane)),
            ),
          ),
        );
        return [
          constants.prepare,
          column.set(i32.mul(tile, int(DOTS_PER_TILE))),
          end.set(i32.add(column, int(DOTS_PER_TILE))),
          when(i32.lt_u(n, end), [end.set(n)]),
          forRange(
            column,
            column,
            end,
            [
              xs.map((at, t) => at.set(elementAt(x, i32.mul(int(t), k), 4))),
              rows.map((pointer, i) =>
                pointer.set(elementAt(weights, index(i), ptr.mul(widen(k), size(storedBytes[type])))),
              ),
              begin,
              products,
              // Panels end in zeros.
              when(i32.rem_u(k, int(UNIT)), [sums.flat().map((sum) => sum.set(f32x4.add(sum, constants.words(0))))]),
              store,
            ],
            DOTS,
          ),
        ];
      }),
    ],
  };
}

/** Transposes 32 columns (k) of 16 rows of weights; columns past the end are 0. */
function transposeCode(name: string, type: StoredType): UnpackCode {
  return defineFunction(name, unpackParams, ({ args, panel, unit, to }, scope) => {
    const { fields, statements } = floatPanelBlock.load(scope, args);
    const constants = new VectorConstants(scope);
    const first = scope.local("i32", "first");
    const left = scope.local("i32", "left");
    const quads = Array.from({ length: PANEL_ROWS / QUAD }, (_, quad) => {
      const rows = scope.localArray("ptr", `row${quad}_`, QUAD);
      const start = (i: number) => elementAt(fields.weights, clamped(first, QUAD * quad + i, fields.n), fields.stride);
      return [
        rows.map((row, i) => row.set(elementAt(start(i), i32.mul(unit, int(UNIT)), storedBytes[type]))),
        transposeQuad({ rows, type, to, scope, constants, left, offset: 16 * quad }),
      ];
    });
    return [
      statements,
      constants.prepare,
      first.set(i32.mul(panel, int(PANEL_ROWS))),
      left.set(i32.sub(fields.k, i32.mul(unit, int(UNIT)))),
      quads,
    ];
  });
}

interface Transposed {
  readonly rows: readonly Local<"ptr">[];
  readonly type: StoredType;
  readonly to: Local<"ptr">;
  readonly scope: Scope;
  readonly constants: VectorConstants;
  /** Columns (k) from the start of the unit to the end of the rows. */
  readonly left: Local<"i32">;
  /** Byte offset of the quad among the floats of a column (k). */
  readonly offset: number;
}

function transposeQuad({ rows, type, to, scope, constants, left, offset }: Transposed): Body {
  const loaded = scope.localArray("v128", "loaded", QUAD);
  const target = scope.local("ptr", "target");
  const i = scope.local("i32", "i");
  const store = (j: number, value: Expr<"v128">) => v128.store(target, value, 4 * PANEL_ROWS * j + offset);
  const next = (count: number) => [
    rows.map((row) => advance(row, count * storedBytes[type])),
    advance(target, 4 * PANEL_ROWS * count),
  ];
  const load = (count: 1 | 4) =>
    loaded.map((local, row) => local.set(lanesOf(count, constants).load(rows[row]!, type)));
  const four = [load(4), transposed(loaded).map((column, j) => store(j, column)), next(4)];
  const one = [load(1), store(0, transposed(loaded)[0]!), next(1)];
  const eight = () => {
    const sources = rows.map((from) => ({ from, offset: 0, floats: scope.localArray("v128", "floats", 2) }));
    const columns = [0, 1].flatMap((quad) => transposed(sources.map(({ floats }) => floats[quad]!)));
    return [eightHalves({ scope, constants }, sources), columns.map((column, j) => store(j, column)), next(8)];
  };
  const whole = type === "f16" ? forRange(i, int(0), int(UNIT), eight(), 8) : forRange(i, int(0), int(UNIT), four, 4);
  return [
    target.set(to),
    when(i32.ge_s(left, int(UNIT)), whole, [
      forRange(i, int(0), left, one),
      forRange(i, i, int(UNIT), [store(0, constants.words(0)), advance(target, 4 * PANEL_ROWS)]),
    ]),
  ];
}

function panelCode(type: StoredType, hasBias: boolean): KernelCode {
  return floatPanelCode({
    key: `linear_panels_${type}${hasBias ? "_bias" : ""}`,
    rows: PANEL_ROWS,
    hasBias,
    hasWholeBiases: false,
    unpack: (name) => transposeCode(name, type),
  });
}

const linearFloatDotsWasm: Kernel<FloatLinearArgs> = wasmKernel({
  ...plainRow,
  name: "linear_f32_f32_1x8x4_wasm_simd",
  nStep: DOTS,
  step({ m, n, k, x, weights, bias, y }, place) {
    const type = weights.dtype as StoredType;
    const places = { weights: place.read(weights.data), bias: bias ? place.read(bias) : 0, n, k };
    const [from, to] = [place.read(x), place.write(y)];
    const tiles = Math.ceil(n / DOTS_PER_TILE);
    const phases = Array.from({ length: Math.ceil(m / DOT_X_ROWS) }, (_, i) => {
      const first = i * DOT_X_ROWS;
      const args = dotBlock.encode({ ...places, x: from + 4 * first * k, y: to + 4 * first * n });
      return { code: dotCode(type, bias !== null, Math.min(DOT_X_ROWS, m - first)), tiles, args };
    });
    const matrixBytes = n * k * storedBytes[type];
    const products = {
      sharedBytes: 0,
      threadScratch: dotBlock.slopes({}),
      matrix: dotBlock.slopes({ weights: matrixBytes, bias: bias ? 4 * n : 0 }),
      row: dotBlock.slopes({ x: 4 * k, y: 4 * n }),
      rows: null,
    };
    return { phases, ...(m <= DOT_X_ROWS && { products }) };
  },
});

const paddedOf = ({ m, k }: FloatLinearArgs): PaddedRows => ({
  m,
  k,
  groupSize: k,
  groupLength: Math.ceil(k / UNIT) * UNIT,
});

const linearFloatPanelsWasm: Kernel<FloatLinearArgs> = wasmKernel({
  ...plainRow,
  name: "linear_f32_f32_4x16x32_wasm_simd",
  mStep: 4,
  nStep: PANEL_ROWS,
  scratchBytes: (args, threads) => paddedBytes(paddedOf(args)) + threads * floatThreadBytes(PANEL_ROWS, args.m),
  step(args, place) {
    const { m, n, k, weights, bias, y } = args;
    const padded = paddedOf(args);
    const type = weights.dtype as StoredType;
    const { phases, x } = padRows(padded, place.read(args.x), place.scratch);
    const panelCount = Math.ceil(n / PANEL_ROWS);
    const perTile = Math.ceil(panelCount / (TILES_PER_THREAD * place.threads));
    const linear = floatPanelBlock.encode({
      weights: place.read(weights.data),
      stride: k * storedBytes[type],
      extra: 0,
      x,
      bias: bias ? place.read(bias) : 0,
      biasStride: 4 * PANEL_ROWS,
      y: place.write(y),
      threadScratch: place.scratch + paddedBytes(padded),
      threadBytes: floatThreadBytes(PANEL_ROWS, m),
      ...{ m, n, k, panelCount, perTile },
      units: paddedLength(padded) / UNIT,
    });
    const tiles = Math.ceil(panelCount / perTile);
    return {
      phases: [...phases, { code: panelCode(type, bias !== null), tiles, args: linear }],
      products: {
        sharedBytes: paddedBytes(padded),
        threadScratch: floatPanelBlock.slopes({ threadScratch: 1 }),
        matrix: floatPanelBlock.slopes({ weights: n * k * storedBytes[type], bias: bias ? 4 * n : 0 }),
        row: floatPanelBlock.slopes({ x: 4 * paddedLength(padded), y: 4 * n }),
        rows: floatPanelBlock.slopes({ m: 1 }),
      },
    };
  },
});

/** Best first. */
export const linearFloatWasm: readonly Kernel<FloatLinearArgs>[] = [linearFloatPanelsWasm, linearFloatDotsWasm];
