/** Converts rows of the KV cache to floats. */
import { type Body, type Expr, type Local, whileDo } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, int, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { eightHalves } from "../../../wasm/generate/halves.ts";
import { forLanes, lanesOf, storedBytes } from "../../../wasm/generate/lanes.ts";
import { advance } from "../../../wasm/generate/loops.ts";
import type { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import type { AttentionShape } from "./shape.ts";

/** A row to convert; `from` and `to` advance. */
export interface CopiedRow {
  readonly from: Local<"ptr">;
  readonly to: Local<"ptr">;
  readonly count: Expr<"i32">;
  /** Scale of int8 values. */
  readonly scale: Local<"v128"> | null;
}

/** Elements loaded before the first is stored. */
const AT_ONCE = 16;

/** Converts `count` elements of a row to floats. */
export function copyRow(
  { scope, constants, cache }: { scope: Scope; constants: VectorConstants; cache: AttentionShape["cache"] },
  { from, to, count, scale }: CopiedRow,
): Body {
  const left = scope.local("i32", "left");
  const values = scope.localArray("v128", "value", AT_ONCE / 4);
  const scaled = (value: Expr<"v128">) => (scale ? f32x4.mul(value, scale) : value);
  const step = 4 * storedBytes[cache];
  const load =
    cache === "f16"
      ? eightHalves({ scope, constants }, [
          { from, offset: 0, floats: values.slice(0, 2) },
          { from, offset: 2 * step, floats: values.slice(2) },
        ])
      : values.map((value, v) => value.set(scaled(lanesOf(4, constants).load(from, cache, v * step))));
  return [
    left.set(count),
    whileDo(i32.ge_u(left, int(AT_ONCE)), [
      load,
      values.map((value, v) => v128.store(to, value, 16 * v)),
      advance(from, AT_ONCE * storedBytes[cache]),
      advance(to, 4 * AT_ONCE),
      left.set(i32.sub(left, int(AT_ONCE))),
    ]),
    forLanes({ scope, constants, count: left, pointers: [[from, cache], [to]] }, (lanes) => [
      lanes.store(to, scaled(lanes.load(from, cache))),
    ]),
  ];
}
