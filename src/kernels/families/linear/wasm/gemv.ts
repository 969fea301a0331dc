/**
 * Integer GEMV for one or a few rows of activations: panels are unpacked in registers as they are multiplied, once for up to
 * FEW_ROWS rows. For one row, several panels far apart are read at once, which memory serves faster. A tile is a range of
 * panels.
 */

import { fieldTables } from "../../../layout/fields.ts";
import {
  type Body,
  call,
  type Expr,
  type FunctionCode,
  type Local,
  type Statement,
  when,
} from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import { defineFunction, type Scope } from "../../../wasm/assembler/module.ts";
import { FactorPlaces, type GroupPlace, groupOffsets, groupScales } from "../../../wasm/generate/group-scales.ts";
import { multiplyAdd } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRows, repeat } from "../../../wasm/generate/loops.ts";
import { PANEL_ROWS, type PanelShape, QUADS, shapeKey } from "../../../wasm/generate/packed-panels.ts";
import { fieldOf, loadChunk, VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { type KernelCode, kernelFunction, kernelParams } from "../../../wasm/kernel-code.ts";
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

/** Panels read at once for one row of activations. */
export const STREAMS = 8;
/** Panels read at once for several rows. */
const FEW_STREAMS = 2;
/** Most rows of activations multiplied at once. */
export const FEW_ROWS = 4;
/** Weights of a row in one iteration of the innermost loop. */
const UNIT = 32;
const UNIT_STEPS = UNIT / 4;
/** Byte offset of results in thread scratch; `storePanel` needs the bytes before it for the ends of rows. */
const RESULTS_START = 4 * PANEL_ROWS;

/** Bytes of thread scratch that the kernel needs. */
export const GEMV_THREAD_BYTES = RESULTS_START + 4 * PANEL_ROWS * Math.max(STREAMS, FEW_STREAMS * FEW_ROWS);

/** GEMV code that multiplies `most` rows of activations at once, and then those left over together. */
export function gemvCode(shape: PanelShape, mode: DotMode, most: number): KernelCode {
  const key = `gemv${most}_${mode}_${shapeKey(shape)}`;
  return { key, build: () => gemvFunctions(key, shape, mode, most) };
}

const rowsParams = { ...kernelParams, row: "i32" } as const;

function gemvFunctions(key: string, shape: PanelShape, mode: DotMode, most: number): FunctionCode[] {
  const rows = Array.from({ length: most }, (_, i) =>
    defineFunction(`${key}_m${i + 1}`, rowsParams, ({ args, tile, thread, row }, scope) => {
      const { fields, statements } = linearBlock.load(scope, args);
      return [
        statements,
        new GemvGenerator({ shape, mode, fields, scope, thread, row, count: i + 1, most }).build(tile),
      ];
    }),
  );
  const main = kernelFunction(key, linearBlock, ({ m }, params, scope) => {
    const row = scope.local("i32", "row");
    return forRows(row, m, most, (count) => call(rows[count - 1]!, { ...params, row }));
  });
  return [main, ...rows];
}

interface GemvContext {
  readonly shape: PanelShape;
  readonly mode: DotMode;
  readonly fields: LinearFields;
  readonly scope: Scope;
  readonly thread: Local<"i32">;
  /** First row of activations, and how many are multiplied at once. */
  readonly row: Local<"i32">;
  readonly count: number;
  /** The most rows that the code multiplies at once. */
  readonly most: number;
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
  readonly #offset: Local<"v128">;
  readonly #row: Local<"i32">;
  readonly #x: readonly Local<"ptr">[];
  readonly #most: number;
  readonly #levels: Local<"v128">;
  readonly #vectors: readonly Local<"v128">[];
  readonly #field: Local<"v128">;
  readonly #plane: Local<"v128">;
  readonly #results: readonly Local<"v128">[];
  /** Results in the thread's scratch: engines that keep them in variables load a whole group before they compute. */
  readonly #resultsAt: Local<"ptr">;

  constructor({ shape, mode, fields, scope, thread, row, count, most }: GemvContext) {
    this.#shape = shape;
    this.#mode = mode;
    this.#fields = fields;
    this.#scope = scope;
    this.#thread = thread;
    this.#constants = new VectorConstants(scope);
    this.#sums = new DotSums(scope, mode, shape, count * QUADS * shape.parts, this.#constants);
    this.#factors = new FactorPlaces(scope, shape);
    this.#scale = scope.local("v128", "scale");
    this.#offset = scope.local("v128", "offset");
    this.#row = row;
    this.#most = most;
    this.#x = scope.localArray("ptr", "x", count);
    this.#levels = scope.local("v128", "level_table");
    this.#vectors = scope.localArray("v128", "vector", fieldTables[shape.bits]!.vectors);
    this.#plane = scope.local("v128", "plane");
    this.#field = scope.local("v128", "field");
    this.#results = scope.localArray("v128", "result", QUADS);
    this.#resultsAt = scope.local("ptr", "results_at");
  }

  build(tile: Local<"i32">): Body {
    const { perTile, panelCount, levels, threadScratch, threadBytes } = this.#fields;
    const first = this.#scope.local("i32", "first");
    const left = this.#scope.local("i32", "left");
    const each = this.#scope.local("i32", "each");
    const start = this.#scope.local("i32", "start");
    const apart = this.#scope.local("i32", "apart");
    const ofOne = () => [
      each.set(i32.div_u(left, int(STREAMS))),
      start.set(first),
      apart.set(each),
      when(each, this.#stripe(STREAMS, { start, apart, count: each })),
      start.set(i32.add(first, i32.mul(each, int(STREAMS)))),
      each.set(i32.rem_u(left, int(STREAMS))),
      when(each, this.#stripe(1, { start, apart, count: each })),
    ];
    // If the number is odd, both streams compute the panel in the middle.
    const ofSome = () => [
      each.set(i32.shr_u(i32.add(left, int(1)), int(1))),
      apart.set(i32.sub(left, each)),
      this.#stripe(FEW_STREAMS, { start: first, apart, count: each }),
    ];
    return [
      first.set(i32.mul(tile, perTile)),
      left.set(i32.sub(panelCount, first)),
      when(i32.lt_u(perTile, left), [left.set(perTile)]),
      this.#constants.prepare,
      this.#shape.hasLevels
        ? this.#levels.set(levelTable(this.#mode, this.#shape, v128.load(levels), this.#constants))
        : [],
      this.#resultsAt.set(ptr.add(elementAt(threadScratch, this.#thread, threadBytes), size(RESULTS_START))),
      this.#most > 1 ? ofSome() : ofOne(),
    ];
  }

  /** Computes `count` panels of each of `streams` streams, which begin `apart` panels apart. */
  #stripe(streams: number, { start, apart, count }: Record<"start" | "apart" | "count", Local<"i32">>): Body {
    const { panels, panelBytes, correctionOffset, frontBytes, records, groups } = this.#fields;
    const weights = this.#scope.localArray("ptr", "weights", streams);
    const turns = this.#scope.local("i32", "turns");
    const group = this.#scope.local("i32", "group");
    const first = (s: number): Expr<"i32"> => i32.add(start, i32.mul(apart, int(s)));
    const bytes = recordCount(this.#shape, 1) * recordBytes(this.#mode, this.#shape);
    return [
      weights.map((weight, s) => weight.set(elementAt(panels, first(s), panelBytes))),
      repeat(turns, count, [
        weights.map((_, s) =>
          this.#x.map((_, t) => this.#results.map((_, r) => this.#storeResult(s, t, r, this.#constants.words(0)))),
        ),
        this.#x.map((x, t) => x.set(elementAt(records, i32.mul(i32.add(this.#row, int(t)), groups), bytes))),
        this.#factors.start(frontBytes),
        repeat(group, groups, [
          weights.map((weight, s) => this.#group(weight, s)),
          this.#x.map((x) => advance(x, bytes)),
          this.#factors.next(),
        ]),
        weights.map((weight, s) => [
          this.#x.map((_, t) => [
            this.#results.map((result, r) => result.set(this.#result(s, t, r))),
            storePanel({
              shape: this.#shape,
              fields: this.#fields,
              scope: this.#scope,
              constants: this.#constants,
              thread: this.#thread,
              row: i32.add(this.#row, int(t)),
              column: i32.mul(i32.add(first(s), i32.sub(count, turns)), int(PANEL_ROWS)),
              tail: weight,
              results: this.#results,
            }),
          ]),
          advance(weight, ptr.sub(panelBytes, correctionOffset)),
        ]),
      ]),
    ];
  }

  #result(stream: number, row: number, quad: number): Expr<"v128"> {
    return v128.load(this.#resultsAt, this.#resultOffset(stream, row, quad));
  }

  #storeResult(stream: number, row: number, quad: number, value: Expr<"v128">): Statement {
    return v128.store(this.#resultsAt, value, this.#resultOffset(stream, row, quad));
  }

  #resultOffset(stream: number, row: number, quad: number): number {
    return 16 * (QUADS * (stream * this.#x.length + row) + quad);
  }

  /** The index of a sum. */
  #sum(row: number, quad: number, part: number): number {
    return quad + QUADS * (part + this.#shape.parts * row);
  }

  /** Computes one group of a panel quad by quad, so that sums stay in registers, and adds the scaled sums to the results. */
  #group(weight: Local<"ptr">, stream: number): Body {
    const { groupBytes, groupLength, blocks, parts } = this.#shape;
    const units = groupLength / UNIT;
    const ofParts = (visit: (part: number) => Body) => Array.from({ length: parts }, (_, part) => visit(part));
    const sums = this.#results.map((_, r) => {
      const begin = ofParts((part) => this.#begin(weight, part, r));
      const end = ofParts((part) => this.#end({ group: weight, part, factors: this.#factors }, stream, r));
      if (blocks > 1) return this.#looped(weight, blocks, true, (at) => [begin, this.#unit(at, r), end]);
      const unit = (at: Local<"ptr">) => this.#unit(at, r);
      return [begin, units === 1 ? unit(weight) : this.#looped(weight, units, false, unit), end];
    });
    return [sums, advance(weight, groupBytes)];
  }

  /** Four activations of a unit, in all lanes. */
  #loadSplat(x: Local<"ptr">, index: number): Expr<"v128"> {
    const ofPart = (UNIT_STEPS * activationBytes(this.#mode)) / this.#shape.parts;
    const bytes = recordBytes(this.#mode, this.#shape);
    return v128.load32_splat(x, Math.floor(index / ofPart) * bytes + 4 * (index % ofPart));
  }

  /** A number of a record of activations, in all lanes. */
  #number(x: Local<"ptr">, part: number, offset: number): Expr<"v128"> {
    return v128.load32_splat(x, part * recordBytes(this.#mode, this.#shape) + offset);
  }

  #begin(weight: Local<"ptr">, part: number, quad: number): Body {
    const { seed, sum } = recordPlaces(this.#mode, this.#shape);
    return this.#x.map((x, t) => {
      const [base, total] = [this.#number(x, part, seed), this.#number(x, part, sum)];
      const start = seedOf(this.#shape, weight, part, quad, base, total);
      return this.#sums.begin(this.#sum(t, quad, part), start);
    });
  }

  /** Adds the sums of a quad to the results of all rows. */
  #end(place: GroupPlace, stream: number, quad: number): Body {
    const shape = this.#shape;
    const { sum, scale: blockScale } = recordPlaces(this.#mode, shape);
    const isRelaxed = isFused(this.#mode, shape);
    const { part } = place;
    const result = this.#results[quad]!;
    const add = (x: Local<"ptr">, t: number) => {
      const sums = floatsOfSums(shape, this.#sums.total(this.#sum(t, quad, part)), this.#constants);
      const scale = shape.inBlocks ? f32x4.mul(this.#scale, this.#number(x, part, blockScale)) : this.#scale;
      return [
        result.set(multiplyAdd(isRelaxed, sums, scale, this.#result(stream, t, quad))),
        shape.hasMinima ? result.set(multiplyAdd(isRelaxed, this.#number(x, part, sum), this.#offset, result)) : [],
        this.#storeResult(stream, t, quad, result),
      ];
    };
    return [
      this.#scale.set(groupScales(shape, place, quad, this.#constants)),
      shape.hasMinima ? this.#offset.set(groupOffsets(shape, place, quad, this.#scale, this.#constants)) : [],
      this.#x.map(add),
    ];
  }

  /** Loops over the units of a group: parts of one record of activations, or if `inBlocks`, blocks with a record each. */
  #looped(weight: Local<"ptr">, count: number, inBlocks: boolean, body: (at: Local<"ptr">) => Body): Body {
    const { bits } = this.#shape;
    const at = this.#scope.local("ptr", "at");
    const unit = this.#scope.local("i32", "unit");
    const bytes = inBlocks ? recordBytes(this.#mode, this.#shape) : UNIT * activationBytes(this.#mode);
    return [
      at.set(weight),
      repeat(unit, int(count), [
        body(at),
        advance(at, (UNIT * PANEL_ROWS * bits) / 8),
        this.#x.map((x) => advance(x, bytes)),
      ]),
      this.#x.map((x) => advance(x, -count * bytes)),
    ];
  }

  /** Multiplies 32 weights of each row of a quad. */
  #unit(weight: Local<"ptr">, quad: number): Body {
    const { vectors, fields } = fieldTables[this.#shape.bits]!;
    const chunks = Array.from({ length: UNIT_STEPS / fields.length }, (_, c) =>
      this.#chunk(weight, this.#shape.vectorsOffset + 64 * vectors * c, c * fields.length, quad),
    );
    return [chunks, this.#sums.settle()];
  }

  /** Multiplies the weights of one chunk: vectors that hold, for each field, four weights of each row of a quad. */
  #chunk(weight: Local<"ptr">, offset: number, firstStep: number, quad: number): Body {
    const { bits } = this.#shape;
    const mode = this.#mode;
    const partOf = (f: number) => Math.floor(((firstStep + f) * this.#shape.parts) / UNIT_STEPS);
    const splat = (t: number, f: number, p: number) =>
      this.#loadSplat(this.#x[t]!, activationOffset(mode, firstStep + f, p) / 4);
    return [
      loadChunk(this.#vectors, weight, offset, quad),
      fieldTables[bits]!.fields.map((_, f) => [
        this.#field.set(fieldOf(bits, f, this.#vectors, this.#constants)),
        planesOf(mode, this.#shape, this.#field, this.#constants, this.#levels).map((plane, p) => [
          this.#plane.set(plane),
          this.#x.map((_, t) => this.#sums.add(this.#sum(t, quad, partOf(f)), p, this.#plane, splat(t, f, p))),
        ]),
      ]),
    ];
  }
}
