/**
 * Integer GEMM: a panel is unpacked once to scratch, then each eight rows of its weights are multiplied with four or six rows
 * of activations at a time. A tile is a range of panels.
 */

import type { FunctionCode } from "../../../wasm/assembler/expression.ts";
import { type Body, call, type Expr, type Local, when } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, i32x4, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import { defineFunction, type Scope } from "../../../wasm/assembler/module.ts";
import { FactorPlaces, groupOffsets, groupScales } from "../../../wasm/generate/group-scales.ts";
import { multiplyAdd } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange, forRows, repeat } from "../../../wasm/generate/loops.ts";
import { type PanelShape, quadsOf, shapeKey } from "../../../wasm/generate/packed-panels.ts";
import { blockBytes, blockSteps, forFields } from "../../../wasm/generate/panel-blocks.ts";
import { loadZeros, VectorConstants, zeroProducts } from "../../../wasm/generate/weight-fields.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import {
  activationBytes,
  activationOffset,
  type DotMode,
  DotSums,
  factorBits,
  floatsOfSums,
  isFused,
  levelTable,
  planeCount,
  planesOf,
  recordBytes,
  recordCount,
  recordPlaces,
} from "./dot-sums.ts";
import { type LinearFields, linearBlock, storePanel } from "./panel.ts";

/** Quads of weight rows multiplied at once. */
const WIDE_QUADS = 2;
/** Rows of activations multiplied at once: with two vectors of weights and one of activations, sums take 15 registers. */
const gemmRows = (mode: DotMode) => (mode === "relaxed" ? 6 : 4);
/** Steps, of four k each, in one iteration of the innermost loop. */
const UNIT_STEPS = 8;
/** Byte offset of the unpacked panel in thread scratch; `storePanel` needs the bytes before it for the ends of rows. */
const PANEL_START = 128;

/** Rows of weights multiplied at once. An unpacked panel has all groups of the first such rows before those of the next. */
const WIDE_ROWS = 4 * WIDE_QUADS;

/** Layout of an unpacked group of WIDE_ROWS rows: scales, zero points or minima, planes. Groups of 16 are one each. */
function unpackedGroup(shape: PanelShape, mode: DotMode): { zeros: number; vectors: number; bytes: number } {
  const zeros = 4 * WIDE_ROWS;
  const vectors = zeros + (shape.hasZeros || shape.hasMinima ? 4 * WIDE_ROWS : 0);
  return { zeros, vectors, bytes: vectors + WIDE_ROWS * shape.partLength * planeCount(mode, shape) };
}

/** Bytes of thread scratch that the kernel needs for `groups` groups. */
export function gemmThreadBytes(shape: PanelShape, mode: DotMode, groups: number): number {
  return PANEL_START + (shape.rows / WIDE_ROWS) * groups * shape.parts * unpackedGroup(shape, mode).bytes;
}

/** Mode of GEMM: factors of 8 bits are multiplied by `plain`, whose sums take half the registers. */
export function gemmMode(mode: DotMode, shape: PanelShape): DotMode {
  return factorBits(shape) === 8 ? "plain" : mode;
}

export function gemmCode(shape: PanelShape, mode: DotMode): KernelCode {
  const key = `gemm_${mode}_${shapeKey(shape)}`;
  return { key, build: () => gemmFunctions(key, shape, mode) };
}

function gemmFunctions(key: string, shape: PanelShape, mode: DotMode): FunctionCode[] {
  const unpack = unpackCode(`${key}_unpack`, shape, mode);
  const most = gemmRows(mode);
  const rows = Array.from({ length: most }, (_, i) => rowsCode(`${key}_m${i + 1}`, shape, mode, i + 1));
  return [
    kernelFunction(key, linearBlock, (fields, { args, tile, thread }, scope) => {
      const { perTile, panelCount, panels, panelBytes, m, groups, threadScratch, threadBytes } = fields;
      const panel = scope.local("i32", "panel");
      const last = scope.local("i32", "last");
      const row = scope.local("i32", "row");
      const part = scope.local("i32", "part");
      const weights = scope.local("ptr", "weights");
      const unpacked = scope.local("ptr", "unpacked");
      return [
        panel.set(i32.mul(tile, perTile)),
        last.set(i32.add(panel, perTile)),
        when(i32.lt_u(panelCount, last), [last.set(panelCount)]),
        unpacked.set(ptr.add(elementAt(threadScratch, thread, threadBytes), size(PANEL_START))),
        forRange(panel, panel, last, [
          weights.set(elementAt(panels, panel, panelBytes)),
          call(unpack, { weights, to: unpacked, groups, levels: fields.levels, frontBytes: fields.frontBytes }),
          forRange(part, int(0), int(shape.rows / WIDE_ROWS), [
            forRows(row, m, most, (count) => call(rows[count - 1]!, { args, panel, thread, row, part })),
          ]),
        ]),
      ];
    }),
    unpack,
    ...rows,
  ];
}

const unpackParams = { weights: "ptr", to: "ptr", groups: "i32", levels: "ptr", frontBytes: "ptr" } as const;

/** Unpacks a panel: float32 scales, 32-bit zero points or float32 minima, and weights as planes. */
function unpackCode(name: string, shape: PanelShape, mode: DotMode): FunctionCode<typeof unpackParams, null> {
  return defineFunction(name, unpackParams, ({ weights, to, groups, levels, frontBytes }, scope) => {
    const constants = new VectorConstants(scope);
    const table = scope.local("v128", "level_table");
    const group = scope.local("i32", "group");
    const at = scope.local("ptr", "at");
    const parts = scope.localArray("ptr", "part", shape.rows / WIDE_ROWS);
    const outs = scope.localArray("ptr", "out", parts.length);
    const block = scope.local("i32", "block");
    const places = unpackedGroup(shape, mode);
    const planes = planeCount(mode, shape);
    const steps = shape.partLength / 4;
    const field = (unpacked: Local<"v128">, quad: number, step: number) => {
      const [section, inSection] = [Math.floor(step / steps), step % steps];
      const start = section * places.bytes + places.vectors + placeIn(quad);
      return planesOf(mode, shape, unpacked, constants, table).map((plane, p) =>
        v128.store(partOf(outs, quad), plane, start + 4 * WIDE_ROWS * (inSection * planes + p)),
      );
    };
    const quads = Array.from({ length: quadsOf(shape) }, (_, r) => r);
    const factors = new FactorPlaces(scope, shape);
    const scale = scope.local("v128", "group_scale");
    const sections = Array.from({ length: shape.parts }, (_, section) => section);
    const head = sections.map((section) =>
      quads.map((r) => {
        const place = { group: weights, part: section, factors };
        const at = section * places.bytes + placeIn(r);
        const store = (value: Expr<"v128">, offset: number) => v128.store(partOf(parts, r), value, at + offset);
        return [
          scale.set(groupScales(shape, place, r, constants)),
          store(scale, 0),
          shape.hasZeros ? store(loadZeros(shape, weights, section, r), places.zeros) : [],
          shape.hasMinima ? store(groupOffsets(shape, place, r, scale, constants), places.zeros) : [],
        ];
      }),
    );
    /** Sections (groups of 16) are unpacked in turn, unless one block holds two of them. */
    const inTurn = steps >= blockSteps(shape) ? sections : [0];
    const blocks = shape.groupLength / (4 * blockSteps(shape)) / inTurn.length;
    return [
      constants.prepare,
      shape.hasLevels ? table.set(levelTable(mode, shape, v128.load(levels), constants)) : [],
      parts.map((part, i) => part.set(i === 0 ? to : elementAt(parts[i - 1]!, groups, shape.parts * places.bytes))),
      factors.start(frontBytes),
      repeat(group, groups, [
        head,
        at.set(weights),
        inTurn.map((section) => [
          outs.map((out, i) => out.set(ptr.add(parts[i]!, size(section * places.bytes)))),
          repeat(block, int(blocks), [
            forFields({ shape, scope, constants }, at, field),
            advance(at, blockBytes(shape)),
            outs.map((out) => advance(out, 4 * WIDE_ROWS * blockSteps(shape) * planes)),
          ]),
        ]),
        advance(weights, shape.groupBytes),
        factors.next(),
        parts.map((part) => advance(part, shape.parts * places.bytes)),
      ]),
    ];
  });
}

/** Part of a panel that has a quad of rows, and the quad's byte offset in it. */
const partOf = (parts: readonly Local<"ptr">[], quad: number) => parts[Math.floor(quad / WIDE_QUADS)]!;
const placeIn = (quad: number) => 16 * (quad % WIDE_QUADS);

const rowsParams = { args: "ptr", panel: "i32", thread: "i32", row: "i32", part: "i32" } as const;
type RowsCode = FunctionCode<typeof rowsParams, null>;

/** Multiplies `count` rows of activations with eight rows of weights of an unpacked panel. */
function rowsCode(name: string, shape: PanelShape, mode: DotMode, count: number): RowsCode {
  return defineFunction(name, rowsParams, ({ args, panel, thread, row, part }, scope) => {
    const { fields, statements } = linearBlock.load(scope, args);
    const constants = new VectorConstants(scope);
    const generator = new RowsGenerator({ shape, mode, fields, scope, constants, count });
    const results = Array.from({ length: count }, (_, t) => scope.localArray("v128", `result${t}_`, WIDE_QUADS));
    const body = generator.body({ thread, row, part }, results);
    const tail = scope.local("ptr", "tail");
    const column = scope.local("i32", "first_column");
    const ends = results.map((quads, t) =>
      storePanel({ shape, fields, scope, constants, thread, row: i32.add(row, int(t)), column, tail, results: quads }),
    );
    return [
      statements,
      constants.prepare,
      body,
      tail.set(ptr.add(elementAt(fields.panels, panel, fields.panelBytes), fields.correctionOffset)),
      tail.set(elementAt(tail, part, 4 * WIDE_ROWS)),
      column.set(i32.add(i32.mul(panel, int(shape.rows)), i32.mul(part, int(WIDE_ROWS)))),
      ends,
    ];
  });
}

interface RowsContext {
  readonly shape: PanelShape;
  readonly mode: DotMode;
  readonly fields: LinearFields;
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly count: number;
}

interface RowsPlace {
  readonly thread: Local<"i32">;
  readonly row: Local<"i32">;
  readonly part: Local<"i32">;
}

class RowsGenerator {
  readonly #context: RowsContext;
  readonly #sums: DotSums;
  readonly #weights: Local<"ptr">;
  readonly #x: readonly Local<"ptr">[];
  readonly #planes: readonly Local<"v128">[];
  readonly #splat: Local<"v128">;

  constructor(context: RowsContext) {
    const { scope, mode, shape, constants, count } = context;
    this.#context = context;
    this.#sums = new DotSums(scope, mode, shape, count * WIDE_QUADS, constants);
    this.#weights = scope.local("ptr", "weights");
    this.#x = scope.localArray("ptr", "x", count);
    this.#planes = scope.localArray("v128", "plane", WIDE_QUADS);
    this.#splat = scope.local("v128", "splat");
  }

  /** Adds the scaled sums of all groups to the results. */
  body({ thread, row, part }: RowsPlace, results: readonly (readonly Local<"v128">[])[]): Body {
    const { shape, mode, fields, scope, constants } = this.#context;
    const group = scope.local("i32", "group");
    const start = elementAt(fields.threadScratch, thread, fields.threadBytes);
    const index = (t: number) => i32.mul(i32.add(row, int(t)), fields.groups);
    const scale = scope.localArray("v128", "scale", WIDE_QUADS);
    const bytes = recordBytes(mode, shape);
    const places = unpackedGroup(shape, mode);
    const { sum, scale: blockScale } = recordPlaces(mode, shape);
    const scaled = results.flatMap((quads, t) =>
      quads.map((result, q) => {
        const sums = floatsOfSums(shape, this.#sums.total(t * WIDE_QUADS + q), constants);
        const add = (a: Expr<"v128">, b: Expr<"v128">) => result.set(multiplyAdd(isFused(mode, shape), a, b, result));
        const factor = shape.inBlocks ? f32x4.mul(scale[q]!, v128.load32_splat(this.#x[t]!, blockScale)) : scale[q]!;
        if (!shape.hasMinima) return add(sums, factor);
        const offsets = v128.load(this.#weights, places.zeros + 16 * q);
        return [add(sums, factor), add(v128.load32_splat(this.#x[t]!, sum), offsets)];
      }),
    );
    return [
      results.flat().map((result) => result.set(constants.words(0))),
      this.#weights.set(ptr.add(start, size(PANEL_START))),
      this.#weights.set(elementAt(this.#weights, i32.mul(fields.groups, part), shape.parts * places.bytes)),
      this.#x.map((x, t) => x.set(elementAt(fields.records, index(t), recordCount(shape, 1) * bytes))),
      repeat(group, i32.mul(fields.groups, int(shape.parts)), [
        this.#blocks((steps) => [
          this.#begin(),
          steps,
          scale.map((quadScale, q) => quadScale.set(v128.load(this.#weights, 16 * q))),
          scaled,
          this.#x.map((x) => advance(x, bytes)),
        ]),
        advance(this.#weights, places.bytes),
      ]),
    ];
  }

  /** Runs `body` for each block of a group, with its steps. If a group has several blocks, each is a unit. */
  #blocks(body: (steps: Body) => Body): Body {
    const { shape, mode, scope } = this.#context;
    if (shape.blocks === 1) return body(this.#steps());
    const block = scope.local("i32", "block");
    const weights = scope.local("ptr", "weights_at");
    const { vectors } = unpackedGroup(shape, mode);
    return [
      weights.set(this.#weights),
      repeat(block, int(shape.blocks), [
        body(this.#unit(weights, this.#x, vectors)),
        advance(weights, 4 * WIDE_ROWS * planeCount(mode, shape) * UNIT_STEPS),
      ]),
    ];
  }

  #begin(): Body {
    const { shape, mode } = this.#context;
    const { zeros } = unpackedGroup(shape, mode);
    const { seed, sum } = recordPlaces(mode, shape);
    return this.#x.flatMap((x, t) =>
      this.#planes.map((_, q) => {
        const splat = v128.load32_splat(x, seed);
        const product = zeroProducts(shape, v128.load(this.#weights, zeros + 16 * q), v128.load32_splat(x, sum));
        return this.#sums.begin(t * WIDE_QUADS + q, shape.hasZeros ? i32x4.sub(splat, product) : splat);
      }),
    );
  }

  /** Adds the products of a group to the integer sums, up to eight steps of four k at a time. */
  #steps(): Body {
    const { shape, mode, scope } = this.#context;
    const units = Math.ceil(shape.partLength / 4 / UNIT_STEPS);
    const { vectors } = unpackedGroup(shape, mode);
    if (units === 1) return this.#unit(this.#weights, this.#x, vectors);
    const unit = scope.local("i32", "unit");
    const weights = scope.local("ptr", "weights_at");
    const planes = planeCount(mode, shape);
    const unitBytes = 4 * UNIT_STEPS * activationBytes(mode);
    return [
      weights.set(this.#weights),
      repeat(unit, int(units), [
        this.#unit(weights, this.#x, vectors),
        advance(weights, 4 * WIDE_ROWS * planes * UNIT_STEPS),
        this.#x.map((x) => advance(x, unitBytes)),
      ]),
      this.#x.map((x) => advance(x, -units * unitBytes)),
    ];
  }

  #unit(weights: Local<"ptr">, x: readonly Local<"ptr">[], vectorsAt: number): Body {
    const { shape, mode } = this.#context;
    const planes = planeCount(mode, shape);
    const steps = Array.from({ length: Math.min(UNIT_STEPS, shape.partLength / 4) * planes }, (_, i) => {
      const offset = activationOffset(mode, Math.floor(i / planes), i % planes);
      return [
        this.#planes.map((plane, q) => plane.set(v128.load(weights, vectorsAt + 4 * WIDE_ROWS * i + 16 * q))),
        x.map((pointer, t) => [
          this.#splat.set(v128.load32_splat(pointer, offset)),
          this.#planes.map((plane, q) => this.#sums.add(t * WIDE_QUADS + q, i % planes, plane, this.#splat)),
        ]),
      ];
    });
    return [steps, this.#sums.settle()];
  }
}
