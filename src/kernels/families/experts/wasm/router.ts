/**
 * Kernels of routers: choosing each row's experts and the places of rows ordered by expert; copying rows to their places; and
 * summing the results of a row's experts. Routings may contain any values: each is checked before use.
 */

import type { Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, when, whileDo, widen } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, int, memory, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes, largestLane, sumOfLanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { ExpertRowsArgs, RouteArgs } from "../fields.ts";

const routeBlock = new ArgumentBlock({
  logits: "ptr",
  bias: "ptr",
  factors: "ptr",
  /** Scores [threads, experts]. */
  scores: "ptr",
  starts: "ptr",
  sources: "ptr",
  places: "ptr",
  weights: "ptr",
  rows: "i32",
  experts: "i32",
  topK: "i32",
  normalize: "i32",
  eps: "f32",
  scale: "f32",
});
type RouteFields = FieldsOf<typeof routeBlock>;

interface RouterKind {
  readonly isSigmoid: boolean;
  readonly hasBias: boolean;
  readonly hasFactors: boolean;
}

/** Addresses of a row's logits and scores. */
interface RouterRow {
  readonly fields: RouteFields;
  readonly logits: Local<"ptr">;
  readonly scores: Local<"ptr">;
  readonly scope: Scope;
}

/** Computes the scores of a row: the softmax over all experts, or a sigmoid for each. */
function scoreRow({ fields, logits, scores, scope }: RouterRow, isSigmoid: boolean): Body {
  const constants = new VectorConstants(scope);
  const math = new VectorMath(scope, constants);
  const [from, to] = [scope.local("ptr", "from"), scope.local("ptr", "to")];
  const [largest, value, total] = ["largest", "score", "total"].map((name) => scope.local("v128", name)) as [
    Local<"v128">,
    Local<"v128">,
    Local<"v128">,
  ];
  const start = [from.set(logits), to.set(scores)];
  const streams = { scope, constants, count: fields.experts };
  const both = { ...streams, pointers: [[from], [to]] as const };
  if (isSigmoid)
    return [
      constants.prepare,
      start,
      forLanes(both, (lanes) => [
        math.exp(f32x4.neg(lanes.load(from)), value),
        lanes.store(to, f32x4.div(constants.floats(1), f32x4.add(constants.floats(1), value))),
      ]),
    ];
  return [
    constants.prepare,
    start,
    largest.set(v128.load32_splat(from)),
    forLanes({ ...streams, pointers: [[from]] }, (lanes) => [
      largest.set(f32x4.max(largest, lanes.count === 4 ? v128.load(from) : v128.load32_splat(from))),
    ]),
    largest.set(f32x4.splat(largestLane(largest))),
    start,
    total.set(constants.floats(0)),
    forLanes(both, (lanes) => [
      math.exp(f32x4.sub(lanes.load(from), largest), value),
      lanes.store(to, value),
      // Loaded back, so that unused lanes are 0 in the sum.
      total.set(f32x4.add(total, lanes.load(to))),
    ]),
    total.set(f32x4.splat(sumOfLanes(total))),
    start,
    forLanes({ ...streams, pointers: [[to]] }, (lanes) => [lanes.store(to, f32x4.div(lanes.load(to), total))]),
  ];
}

/** Chooses the experts of a row, best first; their ids are written to `places`. NaN is never better than another score. */
function chooseExperts({ fields, logits, scores, scope }: RouterRow, chosen: Local<"ptr">, hasBias: boolean): Body {
  const [j, e, best, i, isTaken] = ["j", "e", "best", "i", "is_taken"].map((name) => scope.local("i32", name)) as [
    Local<"i32">,
    Local<"i32">,
    Local<"i32">,
    Local<"i32">,
    Local<"i32">,
  ];
  const [rank, bestRank] = [scope.local("f32", "rank"), scope.local("f32", "best_rank")];
  const at = (base: Local<"ptr">, index: Expr<"i32">) => f32.load(elementAt(base, index, 4));
  return forRange(j, int(0), fields.topK, [
    best.set(int(-1)),
    forRange(e, int(0), fields.experts, [
      rank.set(hasBias ? f32.add(at(scores, e), at(fields.bias, e)) : at(logits, e)),
      when(i32.or(i32.lt_s(best, int(0)), f32.gt(rank, bestRank)), [
        isTaken.set(int(0)),
        forRange(i, int(0), j, [isTaken.set(i32.or(isTaken, i32.eq(i32.load(elementAt(chosen, i, 4)), e)))]),
        when(i32.eqz(isTaken), [best.set(e), bestRank.set(rank)]),
      ]),
    ]),
    i32.store(elementAt(chosen, j, 4), best),
  ]);
}

function routeCode(kind: RouterKind): KernelCode {
  const { isSigmoid, hasBias, hasFactors } = kind;
  const key = `route_${isSigmoid ? "sigmoid" : "softmax"}${hasBias ? "_bias" : ""}${hasFactors ? "_factors" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, routeBlock, (fields, { tile, thread }, scope) => {
        const { experts, topK, normalize, eps, scale } = fields;
        const [logits, scores] = [scope.local("ptr", "row_logits"), scope.local("ptr", "row_scores")];
        const [chosen, weight] = [scope.local("ptr", "chosen"), scope.local("ptr", "weight")];
        const [sum, made] = [scope.local("f32", "sum"), scope.local("f32", "made")];
        const k = scope.local("i32", "k");
        const row = { fields, logits, scores, scope };
        const expert = i32.load(elementAt(chosen, k, 4));
        const factor = hasFactors ? f32.mul(scale, f32.load(elementAt(fields.factors, expert, 4))) : scale;
        return [
          logits.set(elementAt(fields.logits, i32.mul(tile, experts), 4)),
          scores.set(elementAt(fields.scores, i32.mul(thread, experts), 4)),
          chosen.set(elementAt(fields.places, i32.mul(tile, topK), 4)),
          weight.set(elementAt(fields.weights, i32.mul(tile, topK), 4)),
          scoreRow(row, isSigmoid),
          chooseExperts(row, chosen, hasBias),
          forRange(k, int(0), topK, [sum.set(f32.add(sum, f32.load(elementAt(scores, expert, 4))))]),
          forRange(k, int(0), topK, [
            made.set(f32.load(elementAt(scores, expert, 4))),
            when(normalize, [made.set(f32.div(made, f32.add(sum, eps)))]),
            f32.store(weight, f32.mul(made, factor)),
            advance(weight, 4),
          ]),
        ];
      }),
    ],
  };
}

/**
 * Replaces expert ids by places: rows of one expert are consecutive, in their order. `starts` holds the ends of experts
 * meanwhile.
 */
const orderCode: KernelCode = {
  key: "route_order",
  build: () => [
    kernelFunction("route_order", routeBlock, ({ starts, sources, places, rows, experts, topK }, _, scope) => {
      const [i, count, sofar, place] = ["i", "count", "so_far", "place"].map((name) => scope.local("i32", name)) as [
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
      ];
      const at = scope.local("ptr", "at");
      const startOf = (index: Expr<"i32">) => elementAt(starts, index, 4);
      return [
        count.set(i32.mul(rows, topK)),
        forRange(i, int(0), i32.add(experts, int(1)), [i32.store(startOf(i), int(0))]),
        forRange(i, int(0), count, [
          at.set(startOf(i32.load(elementAt(places, i, 4)))),
          i32.store(at, i32.add(i32.load(at), int(1))),
        ]),
        forRange(i, int(0), i32.add(experts, int(1)), [
          at.set(startOf(i)),
          place.set(i32.load(at)),
          i32.store(at, sofar),
          sofar.set(i32.add(sofar, place)),
        ]),
        forRange(i, int(0), count, [
          at.set(startOf(i32.load(elementAt(places, i, 4)))),
          place.set(i32.load(at)),
          i32.store(at, i32.add(place, int(1))),
          i32.store(elementAt(sources, place, 4), i32.div_u(i, topK)),
          i32.store(elementAt(places, i, 4), place),
        ]),
        memory.copy(ptr.add(starts, size(4)), starts, widen(i32.mul(experts, int(4)))),
        i32.store(starts, int(0)),
      ];
    }),
  ],
};

/** Addresses of the parts of a routing, laid out as in src/kernels/families/experts/routing.ts. */
function routingPlaces(routing: number, { rows, experts, topK }: Pick<RouteArgs, "rows" | "experts" | "topK">) {
  const count = rows * topK;
  const sources = routing + 4 * (experts + 1);
  return { starts: routing, sources, places: sources + 4 * count, weights: sources + 8 * count };
}

export const routeWasm: Kernel<RouteArgs> = wasmKernel<RouteArgs>({
  ...plainRow,
  name: "route_f32_1x1x4_wasm_simd",
  scratchBytes: ({ experts }, threads) => 4 * experts * threads,
  step(given, place) {
    const { rows, experts, topK, scores, normalize, eps, scale, logits, bias, factors, routing } = given;
    const args = routeBlock.encode({
      ...{ logits: place.read(logits), bias: bias ? place.read(bias) : 0, factors: factors ? place.read(factors) : 0 },
      ...{ scores: place.scratch, rows, experts, topK, normalize: normalize ? 1 : 0, eps, scale },
      ...routingPlaces(place.write(routing), given),
    });
    const kind = { isSigmoid: scores === "sigmoid", hasBias: bias !== null, hasFactors: factors !== null };
    return {
      phases: [
        { code: routeCode(kind), tiles: rows, args },
        { code: orderCode, tiles: 1, args },
      ],
    };
  },
});

const rowsBlock = new ArgumentBlock({
  x: "ptr",
  y: "ptr",
  sources: "ptr",
  places: "ptr",
  weights: "ptr",
  rows: "i32",
  topK: "i32",
  dim: "i32",
});

/** Copies the row of each place. A tile is a place. */
const expertRowsCode: KernelCode = {
  key: "expert_rows",
  build: () => [
    kernelFunction("expert_rows", rowsBlock, ({ x, y, sources, rows, dim }, { tile }, scope) => {
      const source = scope.local("i32", "source");
      const i = scope.local("i32", "i");
      return [
        source.set(i32.load(elementAt(sources, tile, 4))),
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        when(
          i32.lt_u(source, rows),
          [memory.copy(y, elementAt(x, i32.mul(source, dim), 4), widen(i32.mul(dim, int(4))))],
          [forRange(i, int(0), dim, [f32.store(y, float(Number.NaN)), advance(y, 4)])],
        ),
      ];
    }),
  ],
};

/** Sums the weighted results of a row's experts. A tile is a row. */
const combineCode: KernelCode = {
  key: "combine_experts",
  build: () => [
    kernelFunction("combine_experts", rowsBlock, (fields, { tile }, scope) => {
      const { x, y, places, weights, rows, topK, dim } = fields;
      const constants = new VectorConstants(scope);
      const [from, to] = [scope.local("ptr", "from"), scope.local("ptr", "to")];
      const [i, end, place] = ["i", "end", "place"].map((name) => scope.local("i32", name)) as [
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
      ];
      const weight = scope.local("v128", "weight");
      const streams = { scope, constants, count: dim };
      return [
        constants.prepare,
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        i.set(i32.mul(tile, topK)),
        end.set(i32.add(i, topK)),
        to.set(y),
        forLanes({ ...streams, pointers: [[to]] }, (lanes) => [lanes.store(to, constants.floats(0))]),
        whileDo(i32.lt_u(i, end), [
          place.set(i32.load(elementAt(places, i, 4))),
          weight.set(v128.load32_splat(elementAt(weights, i, 4))),
          when(i32.eqz(i32.lt_u(place, i32.mul(rows, topK))), [
            place.set(int(0)),
            weight.set(constants.floats(Number.NaN)),
          ]),
          from.set(elementAt(x, i32.mul(place, dim), 4)),
          to.set(y),
          forLanes({ ...streams, pointers: [[from], [to]] }, (lanes) => [
            lanes.store(to, f32x4.add(lanes.load(to), f32x4.mul(weight, lanes.load(from)))),
          ]),
          i.set(i32.add(i, int(1))),
        ]),
      ];
    }),
  ],
};

function rowsRow<A extends ExpertRowsArgs>(name: string, code: KernelCode, tilesOf: (args: A) => number): Kernel<A> {
  return wasmKernel<A>({
    ...plainRow,
    name,
    step(given, place) {
      const { rows, topK, dim, x, routing, y } = given;
      const { sources, places, weights } = routingPlaces(place.read(routing), given);
      const parts = { x: place.read(x), y: place.write(y), sources, places, weights };
      return { phases: [{ code, tiles: tilesOf(given), args: rowsBlock.encode({ ...parts, rows, topK, dim }) }] };
    },
  });
}

export const expertRowsWasm: Kernel<ExpertRowsArgs> = rowsRow(
  "expert_rows_f32_1x1x1_wasm_simd",
  expertRowsCode,
  ({ rows, topK }) => rows * topK,
);
export const combineExpertsWasm: Kernel<ExpertRowsArgs> = rowsRow(
  "combine_experts_f32_1x1x4_wasm_simd",
  combineCode,
  ({ rows }) => rows,
);
