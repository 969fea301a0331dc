/** Integer linear kernels: dynamic 8-bit activations times panels of weights, for each dot product mode. */

import type { CpuFeature, Kernel } from "../../../contract.ts";
import {
  inBlocks,
  LEVELS_OFFSET,
  PANEL_ROWS,
  type PanelShape,
  panelShape,
  panelSizes,
} from "../../../wasm/generate/packed-panels.ts";
import { wasmKernel } from "../../../wasm/kernel.ts";
import type { KernelCode, Placement, WasmStep } from "../../../wasm/kernel-code.ts";
import type { PackedLinearArgs } from "../fields.ts";
import { quantizeArgs, quantizeCode, quantizedPlaces } from "./activations.ts";
import { type DotMode, recordBytes, recordCount } from "./dot-sums.ts";
import { gemmCode, gemmMode, gemmThreadBytes } from "./gemm.ts";
import { FEW_ROWS, GEMV_THREAD_BYTES, gemvCode, STREAMS } from "./gemv.ts";
import { linearBlock } from "./panel.ts";

/** The multiplication of a kernel (GEMV or GEMM): its code, and the scratch that a thread needs. */
interface Multiply {
  /** Shape that the code is specialized for. */
  shape(weights: PackedLinearArgs["weights"]): PanelShape;
  mode(shape: PanelShape): DotMode;
  code(shape: PanelShape, mode: DotMode): KernelCode;
  threadBytes(shape: PanelShape, mode: DotMode, groups: number): number;
  panelsPerTile(panels: number, threads: number): number;
}

/** Tiles for each thread: with several, threads wait less for the last one. */
const TILES_PER_THREAD = 8;
const GEMV_PANELS_MAX = 32;
const GEMM_PANELS_MAX = 8;

/** Panels of a GEMV tile: a multiple of STREAMS, unless there are too few panels for that. */
function gemvPanels(panels: number, threads: number): number {
  const share = Math.ceil(panels / threads);
  if (share < STREAMS) return share;
  const wanted = Math.min(GEMV_PANELS_MAX, Math.ceil(panels / (TILES_PER_THREAD * threads)));
  return Math.ceil(wanted / STREAMS) * STREAMS;
}

/** Mode for codebooks: levels of 8 bits are multiplied by `plain`, which is faster than two planes. */
const plainForLevels = (mode: DotMode, { hasLevels, hasNarrowLevels }: PanelShape): DotMode =>
  hasLevels && !hasNarrowLevels ? "plain" : mode;

/**
 * GEMV of up to `rows` rows at once. 16-bit sums would hold single products of 8-bit weights only: `plain` multiplies those.
 */
const gemv = (mode: DotMode, rows: number): Multiply => ({
  shape: panelShape,
  mode: (shape) => plainForLevels(mode === "relaxed16" ? gemmMode(mode, shape) : mode, shape),
  code: (shape, its) => gemvCode(shape, its, rows),
  threadBytes: () => GEMV_THREAD_BYTES,
  panelsPerTile: gemvPanels,
});

const gemm = (mode: DotMode): Multiply => ({
  shape: panelShape,
  mode: (shape) => plainForLevels(gemmMode(mode, shape), shape),
  code: gemmCode,
  threadBytes: gemmThreadBytes,
  panelsPerTile: (panels, threads) =>
    Math.max(1, Math.min(GEMM_PANELS_MAX, Math.ceil(panels / (TILES_PER_THREAD * threads)))),
});

/** `multiply` for activations in blocks. */
const ofBlocks = (multiply: Multiply): Multiply => ({ ...multiply, shape: (weights) => inBlocks(panelShape(weights)) });

/** Bytes of a thread's scratch, in whole cache lines. */
function threadBytes({ weights }: PackedLinearArgs, multiply: Multiply): number {
  const shape = multiply.shape(weights);
  const { groups } = panelSizes(weights, shape);
  return Math.ceil(multiply.threadBytes(shape, multiply.mode(shape), groups) / 64) * 64;
}

function scratchBytes(args: PackedLinearArgs, threads: number, multiply: Multiply): number {
  const shape = multiply.shape(args.weights);
  const { groups } = panelSizes(args.weights, shape);
  const places = quantizedPlaces(0, args.m, groups, shape, multiply.mode(shape));
  return places.byteLength + threads * threadBytes(args, multiply);
}

function linearStep(args: PackedLinearArgs, place: Placement, multiply: Multiply): WasmStep {
  const { m, x, weights, y } = args;
  const shape = multiply.shape(weights);
  const mode = multiply.mode(shape);
  const { n, k, groups, panels, firstPanel, ...bytes } = panelSizes(weights, shape);
  const { panelBytes, correctionOffset, frontBytes } = bytes;
  const places = quantizedPlaces(place.scratch, m, groups, shape, mode);
  const packed = place.read(weights.bytes);
  const perTile = multiply.panelsPerTile(panels, place.threads);
  const linear = linearBlock.encode({
    panels: packed + firstPanel,
    panelBytes,
    correctionOffset,
    frontBytes,
    levels: packed + LEVELS_OFFSET,
    records: places.records,
    scales: places.scales,
    zeros: places.zeros,
    y: place.write(y),
    threadScratch: place.scratch + places.byteLength,
    threadBytes: threadBytes(args, multiply),
    m,
    n,
    groups,
    panelCount: panels,
    perTile,
  });
  const matrixBytes = weights.bytes.length;
  const recordsBytes = recordCount(shape, groups) * recordBytes(mode, shape);
  const quantize = quantizeArgs({ x: place.read(x), places, k, groups: groups * shape.parts });
  return {
    phases: [
      { code: quantizeCode(shape, mode), tiles: m, args: quantize },
      { code: multiply.code(shape, mode), tiles: Math.ceil(panels / perTile), args: linear },
    ],
    products: {
      sharedBytes: places.byteLength,
      threadScratch: linearBlock.slopes({ threadScratch: 1 }),
      matrix: linearBlock.slopes({ panels: matrixBytes, levels: matrixBytes }),
      row: linearBlock.slopes({ records: recordsBytes, scales: 4, zeros: 4, y: 4 * n }),
      rows: linearBlock.slopes({ m: 1 }),
    },
  };
}

/**
 * A kernel. Its name says the fewest rows of activations that it serves and the rows of its panels. Panels of 32 rows are
 * always unpacked first (GEMM).
 */
function linearRow(name: string, needs: readonly CpuFeature[], multiply: Multiply): Kernel<PackedLinearArgs> {
  const [mStep, nStep] = /_(\d+)x(\d+)x/.exec(name)!.slice(1).map(Number) as [number, number];
  return wasmKernel({
    name,
    layouts: [nStep === PANEL_ROWS ? "panel16" : "panel32"],
    bits: [1, 2, 3, 4, 5, 6, 7, 8],
    readsMinima: true,
    needs,
    mStep,
    nStep,
    scratchBytes: (args, threads) => scratchBytes(args, threads, multiply),
    step: (args, place) => linearStep(args, place, multiply),
  });
}

/**
 * Dot product modes, best first. 16-bit sums are faster where the engine makes a 32-bit dot product of several instructions.
 */
const ways: readonly [name: string, mode: DotMode, needs: readonly CpuFeature[]][] = [
  ["relaxed16", "relaxed16", ["relaxed_dot16", "split_dot"]],
  ["relaxed", "relaxed", ["relaxed_dot"]],
  ["simd", "plain", ["simd128"]],
];

/** Kernels for one type of activations, best first. */
const rowsOf = (types: string, of: (multiply: Multiply) => Multiply): readonly Kernel<PackedLinearArgs>[] =>
  ways.flatMap(([name, mode, needs]) => [
    linearRow(`linear_${types}_wx_8x16x32_wasm_${name}`, needs, of(gemm(mode))),
    linearRow(`linear_${types}_wx_2x16x32_wasm_${name}`, needs, of(gemv(mode, FEW_ROWS))),
    linearRow(`linear_${types}_wx_1x16x32_wasm_${name}`, needs, of(gemv(mode, 1))),
    linearRow(`linear_${types}_wx_1x32x32_wasm_${name}`, needs, of(gemm(mode))),
  ]);

/** For activations with one scale and zero point a row. */
export const linearA8Wasm = rowsOf("a8", (multiply) => multiply);
/** For activations in blocks with a scale each. */
export const linearA8BlocksWasm = rowsOf("a8b32", ofBlocks);
