/**
 * Integer linear layers for one or a few rows of activations: packed panels are unpacked as they are multiplied. Several
 * panels far apart are read at once, which memory answers faster than one. A tile is a range of panels.
 */

import { fieldTables } from "../../../layout/fields.ts";
import { type Body, type Expr, type Local, type Statement, when } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { FactorPlaces, groupOffsets, groupScales } from "../../../wasm/generate/group-scales.ts";
import { multiplyAdd } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange, repeat } from "../../../wasm/generate/loops.ts";
import { PANEL_ROWS, type PanelShape, QUADS, shapeKey } from "../../../wasm/generate/packed-panels.ts";
import { fieldOf, loadChunk, VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import {
  activationBytes,
  activationOffset,
  type DotMode,
  DotSums,
  floatsOfSums,
  isFused,
  levelTable,
  planesOf,
  recordBytes,
  recordCount,
  recordPlaces,
} from "./dot-sums.ts";
import { type LinearFields, linearBlock, seedOf, storePanel } from "./panel.ts";

/** Panels read at once. */
export const STREAMS = 8;
/** Weights of a row that one turn of the innermost loop takes. */
const UNIT = 32;
const UNIT_STEPS = UNIT / 4;
/** Quads whose results are stored one after the other: where V8 pairs operations, it begins with such stores. */
const quadPairs = [
  [0, 1],
  [2, 3],
] as const;
/** Before results, thread scratch has the end of rows that `storePanel` needs. */
const RESULTS_START = 4 * PANEL_ROWS;

/** Thread scratch that the kernel needs. */
export const GEMV_THREAD_BYTES = RESULTS_START + 4 * PANEL_ROWS * STREAMS;

export function gemvCode(shape: PanelShape, mode: DotMode): KernelCode {
  const key = `gemv_${mode}_${shapeKey(shape)}`;
  return {
    key,
    build: () => [
      kernelFunction(key, linearBlock, (fields, { tile, thread }, scope) => {
        const generator = new GemvGenerator(shape, mode, fields, scope, thread);
        return generator.build(tile);
      }),
    ],
  };
}

class GemvGenerator {
  readonly #shape: PanelShape;
  readonly #mode: DotMode;
  readonly #fields: LinearFields;
  readonly #scope: Scope;
  readonly #thread: Local<"i32">;
  readonly #constants: VectorConstants;
  readonly #sums: DotSums;
  readonly #factors: FactorPlaces;
  readonly #scale: Local<"v128">;
  readonly #row: Local<"i32">;
  readonly #x: Local<"ptr">;
  readonly #levels: Local<"v128">;
  readonly #vectors: readonly Local<"v128">[];
  readonly #field: Local<"v128">;
  /** The activations of a unit. */
  readonly #splats: readonly Local<"v128">[];
  readonly #results: readonly Local<"v128">[];
  /** Results in the thread's scratch: engines that keep them in variables load a whole group before they compute. */
  readonly #resultsAt: Local<"ptr">;

  constructor(shape: PanelShape, mode: DotMode, fields: LinearFields, scope: Scope, thread: Local<"i32">) {
    this.#shape = shape;
    this.#mode = mode;
    this.#fields = fields;
    this.#scope = scope;
    this.#thread = thread;
    this.#constants = new VectorConstants(scope);
    this.#sums = new DotSums(scope, mode, shape, QUADS * shape.parts, this.#constants);
    this.#factors = new FactorPlaces(scope, shape);
    this.#scale = scope.local("v128", "scale");
    this.#row = scope.local("i32", "row");
    this.#x = scope.local("ptr", "x");
    this.#levels = scope.local("v128", "level_table");
    this.#vectors = scope.localArray("v128", "vector", fieldTables[shape.bits]!.vectors);
    this.#field = scope.local("v128", "field");
    this.#splats = scope.localArray("v128", "splat", UNIT_STEPS * activationBytes(mode));
    this.#results = scope.localArray("v128", "result", QUADS);
    this.#resultsAt = scope.local("ptr", "results_at");
  }

  build(tile: Local<"i32">): Body {
    const { perTile, panelCount, m, levels, threadScratch, threadBytes } = this.#fields;
    const first = this.#scope.local("i32", "first");
    const left = this.#scope.local("i32", "left");
    const each = this.#scope.local("i32", "each");
    const start = this.#scope.local("i32", "start");
    const rows = forRange(this.#row, int(0), m, [
      each.set(i32.div_u(left, int(STREAMS))),
      start.set(first),
      when(each, this.#stripe(STREAMS, start, each)),
      start.set(i32.add(first, i32.mul(each, int(STREAMS)))),
      each.set(i32.rem_u(left, int(STREAMS))),
      when(each, this.#stripe(1, start, each)),
    ]);
    return [
      first.set(i32.mul(tile, perTile)),
      left.set(i32.sub(panelCount, first)),
      when(i32.lt_u(perTile, left), [left.set(perTile)]),
      this.#constants.prepare,
      this.#shape.hasLevels
        ? this.#levels.set(levelTable(this.#mode, this.#shape, v128.load(levels), this.#constants))
        : [],
      this.#resultsAt.set(ptr.add(elementAt(threadScratch, this.#thread, threadBytes), size(RESULTS_START))),
      rows,
    ];
  }

  /** `count` panels of each of some streams, which begin `count` panels apart. */
  #stripe(streams: number, start: Local<"i32">, count: Local<"i32">): Body {
    const { panels, panelBytes, correctionOffset, frontBytes, records, groups } = this.#fields;
    const weights = this.#scope.localArray("ptr", "weights", streams);
    const turns = this.#scope.local("i32", "turns");
    const group = this.#scope.local("i32", "group");
    const first = (s: number): Expr<"i32"> => i32.add(start, i32.mul(count, int(s)));
    const bytes = recordCount(this.#shape, 1) * recordBytes(this.#mode, this.#shape);
    const units = this.#shape.groupLength / UNIT;
    return [
      weights.map((weight, s) => weight.set(elementAt(panels, first(s), panelBytes))),
      repeat(turns, count, [
        weights.map((_, s) => this.#results.map((_, r) => this.#storeResult(s, r, this.#constants.words(0)))),
        this.#x.set(elementAt(records, i32.mul(this.#row, groups), bytes)),
        this.#factors.start(frontBytes),
        repeat(group, groups, [
          units === 1 ? this.#loadSplats(this.#x, 0, UNIT_STEPS) : [],
          weights.map((weight, s) => this.#group(weight, s, units)),
          advance(this.#x, bytes),
          this.#factors.next(),
        ]),
        weights.map((weight, s) => [
          this.#results.map((result, r) => result.set(this.#result(s, r))),
          storePanel({
            shape: this.#shape,
            fields: this.#fields,
            scope: this.#scope,
            constants: this.#constants,
            thread: this.#thread,
            row: this.#row,
            column: i32.mul(i32.add(first(s), i32.sub(count, turns)), int(PANEL_ROWS)),
            tail: weight,
            results: this.#results,
          }),
          advance(weight, ptr.sub(panelBytes, correctionOffset)),
        ]),
      ]),
    ];
  }

  #result(stream: number, quad: number): Expr<"v128"> {
    return v128.load(this.#resultsAt, 16 * (QUADS * stream + quad));
  }

  #storeResult(stream: number, quad: number, value: Expr<"v128">): Statement {
    return v128.store(this.#resultsAt, value, 16 * (QUADS * stream + quad));
  }

  /** Loads the activations of some steps of a unit. */
  #loadSplats(x: Local<"ptr">, first: number, count: number): Body {
    const perStep = activationBytes(this.#mode);
    const ofPart = this.#splats.length / this.#shape.parts;
    const bytes = recordBytes(this.#mode, this.#shape);
    const offset = (i: number) => Math.floor(i / ofPart) * bytes + 4 * (i % ofPart);
    const loads = this.#splats.map((splat, i) => splat.set(v128.load32_splat(x, offset(i))));
    return loads.slice(first * perStep, (first + count) * perStep);
  }

  /** One group of a panel: its integer sums, scaled and added to the results. */
  #group(weight: Local<"ptr">, stream: number, units: number): Body {
    const shape = this.#shape;
    const { seed, sum, scale: blockScale } = recordPlaces(this.#mode, shape);
    const bytes = recordBytes(this.#mode, shape);
    const splat = (part: number, offset: number) => v128.load32_splat(this.#x, part * bytes + offset);
    const quads = Array.from({ length: QUADS }, (_, r) => r);
    const isRelaxed = isFused(this.#mode, shape);
    const add = (part: number, r: number) => {
      const place = { group: weight, part, factors: this.#factors };
      const result = this.#results[r]!;
      const sums = floatsOfSums(shape, this.#sums.total(r + QUADS * part), this.#constants);
      const ofWeights = groupScales(shape, place, r, this.#constants);
      const scale = shape.inBlocks ? f32x4.mul(ofWeights, splat(part, blockScale)) : ofWeights;
      const sofar = this.#result(stream, r);
      if (!shape.hasMinima) return result.set(multiplyAdd(isRelaxed, sums, scale, sofar));
      const offsets = groupOffsets(shape, place, r, this.#scale, this.#constants);
      const scaled = shape.inBlocks ? f32x4.mul(this.#scale, splat(part, blockScale)) : this.#scale;
      return [
        this.#scale.set(ofWeights),
        result.set(multiplyAdd(isRelaxed, sums, scaled, sofar)),
        result.set(multiplyAdd(isRelaxed, splat(part, sum), offsets, result)),
      ];
    };
    const parts = Array.from({ length: shape.parts }, (_, part) => part);
    const begin = parts.map((part) =>
      quads.map((r) =>
        this.#sums.begin(r + QUADS * part, seedOf(shape, weight, r, splat(part, seed), splat(part, sum))),
      ),
    );
    const end = parts.map((part) =>
      quadPairs.map((pair) => [
        pair.map((r) => add(part, r)),
        pair.map((r) => this.#storeResult(stream, r, this.#results[r]!)),
      ]),
    );
    if (shape.blocks > 1) return [this.#loopedBlocks(weight, begin, end), advance(weight, shape.groupBytes)];
    return [
      begin,
      units === 1 ? this.#unit(weight, null) : this.#loopedUnits(weight, units),
      end,
      advance(weight, shape.groupBytes),
    ];
  }

  /** Blocks of a unit each, with records that follow each other. */
  #loopedBlocks(weight: Local<"ptr">, begin: Body, end: Body): Body {
    const { blocks, bits } = this.#shape;
    const at = this.#scope.local("ptr", "at");
    const block = this.#scope.local("i32", "block");
    const bytes = recordBytes(this.#mode, this.#shape);
    return [
      at.set(weight),
      repeat(block, int(blocks), [
        begin,
        this.#unit(at, this.#x),
        end,
        advance(at, (UNIT * 16 * bits) / 8),
        advance(this.#x, bytes),
      ]),
      advance(this.#x, -blocks * bytes),
    ];
  }

  #loopedUnits(weight: Local<"ptr">, units: number): Body {
    const at = this.#scope.local("ptr", "at");
    const x = this.#scope.local("ptr", "x_at");
    const unit = this.#scope.local("i32", "unit");
    return [
      at.set(weight),
      x.set(this.#x),
      repeat(unit, int(units), [
        this.#unit(at, x),
        advance(at, (UNIT * 16 * this.#shape.bits) / 8),
        advance(x, UNIT * activationBytes(this.#mode)),
      ]),
    ];
  }

  /** 32 weights of 16 rows, and their activations where they are not loaded yet. */
  #unit(weight: Local<"ptr">, x: Local<"ptr"> | null): Body {
    const { vectors, fields } = fieldTables[this.#shape.bits]!;
    const chunks = Array.from({ length: UNIT_STEPS / fields.length }, (_, c) => [
      x ? this.#loadSplats(x, c * fields.length, fields.length) : [],
      this.#chunk(weight, this.#shape.vectorsOffset + 64 * vectors * c, c * fields.length),
    ]);
    return [chunks, this.#sums.settle()];
  }

  /** The vectors that hold `fields` times four weights of 16 rows. */
  #chunk(weight: Local<"ptr">, offset: number, firstStep: number): Body {
    const { bits } = this.#shape;
    const mode = this.#mode;
    const partOf = (f: number) => Math.floor(((firstStep + f) * this.#shape.parts) / UNIT_STEPS);
    const splat = (f: number, p: number) => this.#splats[activationOffset(mode, firstStep + f, p) / 4]!;
    return Array.from({ length: QUADS }, (_, r) => [
      loadChunk(this.#vectors, weight, offset, r),
      fieldTables[bits]!.fields.map((_, f) => [
        this.#field.set(fieldOf(bits, f, this.#vectors, this.#constants)),
        planesOf(mode, this.#shape, this.#field, this.#constants, this.#levels).map((plane, p) =>
          this.#sums.add(r + QUADS * partOf(f), p, plane, splat(f, p)),
        ),
      ]),
    ]);
  }
}
