/** The end of attention: the sums of a group of queries over all parts of the positions, divided by their totals. */
import type { Body, Local } from "../assembler/expression.ts";
import { f32x4, int, ptr, size, v128 } from "../assembler/instructions.ts";
import { forLanes } from "../generate/lanes.ts";
import { advance, elementAt, repeat } from "../generate/loops.ts";
import { type BlockContext, QueryBlock } from "./block.ts";
import { KEPT, TilePlaces, VECTOR } from "./places.ts";

/** The statements of a tile of the phase after parts: a group. */
export function mergeParts(context: BlockContext): Body {
  const block = new QueryBlock(context);
  const places = new TilePlaces(context);
  const kept = context.scope.local("ptr", "kept");
  return [
    block.constants.prepare,
    places.findSizes(),
    block.find(),
    kept.set(elementAt(places.scratchOf(int(0)), context.tile, places.keptBytes)),
    finishGroup(block, places, kept),
  ];
}

/** The results of the block's queries; `kept` is where their group keeps things in the first part. */
export function finishGroup(block: QueryBlock, places: TilePlaces, kept: Local<"ptr">): Body {
  const { constants, math, y, context } = block;
  const { scope, fields } = context;
  const at = scope.local("ptr", "at");
  const value = scope.local("v128", "value");
  const largest = scope.local("v128", "largest");
  const total = scope.local("v128", "total");
  const inverses = scope.localArray("v128", "inverse", y.length);
  const sums = scope.localArray("v128", "sum", y.length);
  const dimension = scope.local("ptr", "dimension");
  const sum = scope.local("ptr", "sum");
  const eachPart = (body: Body) => [
    at.set(kept),
    repeat(scope.local("i32", "left"), fields.parts, [body, advance(at, fields.scratchBytes)]),
  ];
  return [
    largest.set(v128.load(kept, KEPT.largest)),
    eachPart([largest.set(f32x4.pmax(largest, v128.load(at, KEPT.largest)))]),
    total.set(constants.words(0)),
    eachPart([
      math.exp(f32x4.sub(v128.load(at, KEPT.largest), largest), value),
      v128.store(at, value, KEPT.largest),
      total.set(f32x4.add(total, f32x4.mul(v128.load(at, KEPT.totals), value))),
    ]),
    value.set(f32x4.div(constants.floats(1), total)),
    inverses.map((local, j) => local.set(f32x4.splat(f32x4.extract_lane(value, j)))),
    dimension.set(size(0)),
    forLanes({ scope, constants, count: fields.headDim, pointers: y.map((p) => [p] as const) }, (lanes) => [
      sums.map((local) => local.set(constants.words(0))),
      eachPart([
        sum.set(ptr.add(places.sums(at), dimension)),
        sums.map((local, j) => {
          const part = lanes.load(ptr.add(sum, size(VECTOR * j)));
          return local.set(f32x4.add(local, f32x4.mul(part, v128.load32_splat(at, KEPT.largest + 4 * j))));
        }),
      ]),
      y.map((to, j) => lanes.store(to, f32x4.mul(sums[j]!, inverses[j]!))),
      advance(dimension, lanes.count === 4 ? places.quadBytes : 4),
    ]),
  ];
}
