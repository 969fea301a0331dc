/**
 * Integer linear layers for one or a few rows of activations: packed panels are unpacked as they are multiplied. Several
 * panels far apart are read at once, which memory answers faster than one. A tile is a range of panels.
 */

import { fieldTables } from "../layout/fields.ts";
import { type Body, type Expr, type Local, when } from "./assembler/expression.ts";
import { f32x4, i32, int, ptr, v128 } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import {
  activationBytes,
  activationOffset,
  type DotMode,
  DotSums,
  floatsOfSums,
  planeCount,
  planesOf,
  recordBytes,
  recordPlaces,
} from "./dot-sums.ts";
import { type KernelCode, kernelFunction } from "./kernel-code.ts";
import { type LinearFields, linearBlock, seedOf, storePanel } from "./linear-panel.ts";
import { advance, elementAt, forRange, repeat } from "./loops.ts";
import { PANEL_ROWS, type PanelShape, QUADS, shapeKey } from "./packed-panels.ts";
import { fieldOf, loadChunk, loadScales, VectorConstants } from "./weight-fields.ts";

/** Panels read at once. */
export const STREAMS = 8;
/** Weights of a row that one turn of the innermost loop takes. */
const UNIT = 32;
/** Units of a group that are written out instead of looped over. */
const UNROLLED_UNITS = 2;

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
  readonly #row: Local<"i32">;
  readonly #x: Local<"ptr">;
  readonly #levels: Local<"v128">;
  readonly #vectors: readonly Local<"v128">[];
  readonly #field: Local<"v128">;
  readonly #splats: readonly Local<"v128">[];

  constructor(shape: PanelShape, mode: DotMode, fields: LinearFields, scope: Scope, thread: Local<"i32">) {
    this.#shape = shape;
    this.#mode = mode;
    this.#fields = fields;
    this.#scope = scope;
    this.#thread = thread;
    this.#constants = new VectorConstants(scope);
    this.#sums = new DotSums(scope, mode, shape, QUADS, this.#constants);
    this.#row = scope.local("i32", "row");
    this.#x = scope.local("ptr", "x");
    this.#levels = scope.local("v128", "level_table");
    this.#vectors = scope.localArray("v128", "vector", fieldTables[shape.bits]!.vectors);
    this.#field = scope.local("v128", "field");
    this.#splats = scope.localArray("v128", "splat", 4);
  }

  build(tile: Local<"i32">): Body {
    const { perTile, panelCount, m, levels } = this.#fields;
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
      this.#shape.hasLevels ? this.#levels.set(v128.load(levels)) : [],
      this.#constants.prepare,
      rows,
    ];
  }

  /** `count` panels of each of some streams, which begin `count` panels apart. */
  #stripe(streams: number, start: Local<"i32">, count: Local<"i32">): Body {
    const { panels, panelBytes, correctionOffset, records, groups } = this.#fields;
    const weights = this.#scope.localArray("ptr", "weights", streams);
    const results = weights.map((_, s) => this.#scope.localArray("v128", `result${s}_`, QUADS));
    const turns = this.#scope.local("i32", "turns");
    const group = this.#scope.local("i32", "group");
    const first = (s: number): Expr<"i32"> => i32.add(start, i32.mul(count, int(s)));
    const bytes = recordBytes(this.#mode, this.#shape);
    return [
      weights.map((weight, s) => weight.set(elementAt(panels, first(s), panelBytes))),
      repeat(turns, count, [
        results.flat().map((result) => result.set(this.#constants.words(0))),
        this.#x.set(elementAt(records, i32.mul(this.#row, groups), bytes)),
        repeat(group, groups, [weights.map((weight, s) => this.#group(weight, results[s]!)), advance(this.#x, bytes)]),
        weights.map((weight, s) => [
          storePanel({
            shape: this.#shape,
            fields: this.#fields,
            scope: this.#scope,
            constants: this.#constants,
            thread: this.#thread,
            row: this.#row,
            column: i32.mul(i32.add(first(s), i32.sub(count, turns)), int(PANEL_ROWS)),
            tail: weight,
            results: results[s]!,
          }),
          advance(weight, ptr.sub(panelBytes, correctionOffset)),
        ]),
      ]),
    ];
  }

  /** One group of a panel: its integer sums, scaled and added to the results. */
  #group(weight: Local<"ptr">, results: readonly Local<"v128">[]): Body {
    const shape = this.#shape;
    const units = shape.groupLength / UNIT;
    const { seed, sum } = recordPlaces(this.#mode, shape);
    const splat = (offset: number) => v128.load32_splat(this.#x, offset);
    const seeds = results.map((_, r) => this.#sums.begin(r, seedOf(shape, weight, r, splat(seed), splat(sum))));
    const sums =
      units <= UNROLLED_UNITS
        ? Array.from({ length: units }, (_, unit) => this.#unit(weight, this.#x, shape.vectorsOffset, unit))
        : this.#loopedUnits(weight, units);
    const scaled = results.map((result, r) => {
      const scale = loadScales(shape, weight, r, this.#constants);
      return result.set(f32x4.add(result, f32x4.mul(floatsOfSums(shape, this.#sums.total(r), this.#constants), scale)));
    });
    return [seeds, sums, scaled, advance(weight, shape.groupBytes)];
  }

  #loopedUnits(weight: Local<"ptr">, units: number): Body {
    const at = this.#scope.local("ptr", "at");
    const x = this.#scope.local("ptr", "x_at");
    const unit = this.#scope.local("i32", "unit");
    return [
      at.set(weight),
      x.set(this.#x),
      repeat(unit, int(units), [
        this.#unit(at, x, this.#shape.vectorsOffset, 0),
        advance(at, (UNIT * 16 * this.#shape.bits) / 8),
        advance(x, UNIT * activationBytes(this.#mode)),
      ]),
    ];
  }

  /** 32 weights of 16 rows. */
  #unit(weight: Local<"ptr">, x: Local<"ptr">, offset: number, unit: number): Body {
    const { bits } = this.#shape;
    const { vectors, fields } = fieldTables[bits]!;
    const chunkLength = 4 * fields.length;
    const chunks = Array.from({ length: UNIT / chunkLength }, (_, c) => {
      const chunk = (unit * UNIT) / chunkLength + c;
      return this.#chunk(weight, x, offset + 64 * vectors * chunk, chunk * fields.length);
    });
    return [chunks, this.#sums.settle()];
  }

  /** The vectors that hold `fields` times four weights of 16 rows. */
  #chunk(weight: Local<"ptr">, x: Local<"ptr">, offset: number, firstStep: number): Body {
    const { bits } = this.#shape;
    const mode = this.#mode;
    const { fields } = fieldTables[bits]!;
    const planes = planeCount(mode, bits);
    const distinct = mode === "plain" ? planes : 1;
    const load = (f: number, p: number) => v128.load32_splat(x, activationOffset(mode, firstStep + f, p));
    const isKept = fields.length * distinct <= this.#splats.length;
    const kept = fields.flatMap((_, f) =>
      Array.from({ length: distinct }, (_, p) => this.#splats[f * distinct + p]?.set(load(f, p))),
    );
    const splat = (f: number, p: number) => (isKept ? this.#splats[f * distinct + (p % distinct)]! : load(f, p));
    const quads = Array.from({ length: QUADS }, (_, r) => [
      loadChunk(this.#vectors, weight, offset, r),
      fields.map((_, f) => [
        this.#field.set(fieldOf(bits, f, this.#vectors, this.#constants)),
        planesOf(mode, this.#shape, this.#field, this.#constants, this.#levels).map((plane, p) =>
          this.#sums.add(r, p, plane, splat(f, p)),
        ),
      ]),
    ]);
    return [isKept ? kept.filter((statement) => statement !== undefined) : [], quads];
  }
}
