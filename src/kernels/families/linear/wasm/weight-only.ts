/** Weight-only linear kernels: float activations times quantized weights, which are dequantized panel by panel. */

import type { Kernel } from "../../../contract.ts";
import type { Body, Local } from "../../../wasm/assembler/expression.ts";
import { f32x4, i8x16, i32, i32x4, int, v128 } from "../../../wasm/assembler/instructions.ts";
import { defineFunction } from "../../../wasm/assembler/module.ts";
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
import { advance, elementAt, repeat } from "../../../wasm/generate/loops.ts";
import {
  LEVELS_OFFSET,
  type PanelShape,
  panelShape,
  panelSizes,
  quadsOf,
  shapeKey,
} from "../../../wasm/generate/packed-panels.ts";
import { type BlockReader, blockBytes, blockSteps, forFields } from "../../../wasm/generate/panel-blocks.ts";
import { loadScales, loadZeros, unscaleHalves, VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { wasmKernel } from "../../../wasm/kernel.ts";
import type { KernelCode } from "../../../wasm/kernel-code.ts";
import type { PackedLinearArgs } from "../fields.ts";

/** Tiles for each thread: with several, threads wait less for the last one. */
const TILES_PER_THREAD = 8;

/** Dequantizes 32 columns (k) of a panel: (level - zero) * scale. */
function unpackCode(name: string, shape: PanelShape): UnpackCode {
  return defineFunction(name, unpackParams, ({ args, panel, unit, to }, scope) => {
    const { fields, statements } = floatPanelBlock.load(scope, args);
    const constants = new VectorConstants(scope);
    const unitsOfGroup = shape.groupLength / UNIT;
    const group = scope.local("ptr", "group");
    const at = scope.local("ptr", "at");
    const table = scope.local("v128", "level_table");
    const scales = scope.localArray("v128", "scale", quadsOf(shape));
    const zeros = scope.localArray("v128", "zero", quadsOf(shape));
    const bytes = (shape.rows * UNIT * shape.bits) / 8;
    const unpacking: Unpacking = { shape, scope, constants, table, scales, zeros, to };
    const zeroOf = (quad: number) => {
      const offset = constants.words(shape.hasLevels ? 0 : 2 ** (shape.bits - 1));
      return shape.hasZeros ? i32x4.add(loadZeros(shape, group, 0, quad), offset) : offset;
    };
    return [
      statements,
      constants.prepare,
      shape.hasLevels ? table.set(v128.load(fields.extra)) : [],
      group.set(elementAt(fields.weights, panel, fields.stride)),
      group.set(elementAt(group, i32.div_u(unit, int(unitsOfGroup)), shape.groupBytes)),
      scales.map((scale, quad) =>
        scale.set(unscaleHalves(shape, loadScales(shape, group, quad, constants), constants)),
      ),
      zeros.map((zero, quad) => zero.set(zeroOf(quad))),
      at.set(elementAt(group, i32.rem_u(unit, int(unitsOfGroup)), bytes)),
      repeat(scope.local("i32", "blocks"), int(UNIT / (4 * blockSteps(shape))), [
        unpackBlock(unpacking, at),
        advance(at, blockBytes(shape)),
        advance(to, 16 * shape.rows * blockSteps(shape)),
      ]),
    ];
  });
}

interface Unpacking extends BlockReader {
  readonly table: Local<"v128">;
  /** Scales of each quad. */
  readonly scales: readonly Local<"v128">[];
  readonly zeros: readonly Local<"v128">[];
  readonly to: Local<"ptr">;
}

function unpackBlock({ table, scales, zeros, to, ...reader }: Unpacking, at: Local<"ptr">): Body {
  const { shape, constants } = reader;
  return forFields(reader, at, (field, quad, step) => [
    shape.hasLevels ? field.set(i8x16.swizzle(table, field)) : [],
    [0, 1, 2, 3].map((j) => {
      const high = i32x4.shl(field, int(24 - 8 * j));
      const unsigned = v128.and(i32x4.shr_u(field, int(8 * j)), constants.words(255));
      const level = i32x4.sub(shape.hasLevels ? i32x4.shr_s(high, int(24)) : unsigned, zeros[quad]!);
      const value = f32x4.mul(f32x4.convert_i32x4_s(level), scales[quad]!);
      return v128.store(to, value, 4 * shape.rows * (4 * step + j) + 16 * quad);
    }),
  ]);
}

function weightOnlyCode(shape: PanelShape): KernelCode {
  return floatPanelCode({
    key: `weight_only_${shapeKey(shape)}`,
    rows: shape.rows,
    hasBias: shape.hasBias,
    hasWholeBiases: true,
    unpack: (name) => unpackCode(name, shape),
  });
}

function paddedOf({ m, weights }: PackedLinearArgs, { groupSize, groupLength }: PanelShape): PaddedRows {
  return { m, k: weights.spec.k, groupSize, groupLength };
}

function weightOnlyRow(name: string, layout: string, rows: number): Kernel<PackedLinearArgs> {
  return wasmKernel({
    name,
    layouts: [layout],
    bits: [1, 2, 3, 4, 5, 6, 7, 8],
    needs: ["simd128"],
    mStep: 1,
    nStep: rows,
    scratchBytes: (args, threads) =>
      paddedBytes(paddedOf(args, panelShape(args.weights))) + threads * floatThreadBytes(rows, args.m),
    step(args, place) {
      const { m, weights, y } = args;
      const shape = panelShape(weights);
      const { n, k, panels, panelBytes, correctionOffset, firstPanel } = panelSizes(weights, shape);
      const padded = paddedOf(args, shape);
      const { phases, x } = padRows(padded, place.read(args.x), place.scratch);
      const packed = place.read(weights.bytes);
      const perTile = Math.ceil(panels / (TILES_PER_THREAD * place.threads));
      const linear = floatPanelBlock.encode({
        weights: packed + firstPanel,
        stride: panelBytes,
        extra: packed + LEVELS_OFFSET,
        x,
        bias: packed + firstPanel + correctionOffset + 4 * rows,
        biasStride: panelBytes,
        y: place.write(y),
        threadScratch: place.scratch + paddedBytes(padded),
        threadBytes: floatThreadBytes(rows, m),
        ...{ m, n, k, perTile },
        units: paddedLength(padded) / UNIT,
        panelCount: panels,
      });
      const matrixBytes = weights.bytes.length;
      return {
        phases: [...phases, { code: weightOnlyCode(shape), tiles: Math.ceil(panels / perTile), args: linear }],
        products: {
          sharedBytes: paddedBytes(padded),
          threadScratch: floatPanelBlock.slopes({ threadScratch: 1 }),
          matrix: floatPanelBlock.slopes({ weights: matrixBytes, extra: matrixBytes, bias: matrixBytes }),
          row: floatPanelBlock.slopes({ x: 4 * paddedLength(padded), y: 4 * n }),
          rows: floatPanelBlock.slopes({ m: 1 }),
        },
      };
    },
  });
}

export const linearWeightOnlyWasm: readonly Kernel<PackedLinearArgs>[] = [
  weightOnlyRow("linear_f32_wx_1x16x32_wasm_simd", "panel16", 16),
  weightOnlyRow("linear_f32_wx_1x32x32_wasm_simd", "panel32", 32),
];
