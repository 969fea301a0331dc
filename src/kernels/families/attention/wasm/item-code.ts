/** Functions that compute one work item of a run: one for runs of one row, one for longer runs. */
import { type Body, call, type FunctionCode, type Local, when } from "../../../wasm/assembler/expression.ts";
import { i32, int } from "../../../wasm/assembler/instructions.ts";
import { defineFunction, type Scope } from "../../../wasm/assembler/module.ts";
import { Run } from "../../../wasm/generate/runs.ts";
import type { GroupContext } from "./group.ts";
import { type AttentionShape, attentionBlock, type GroupShape } from "./shape.ts";

const itemParams = { args: "ptr", run: "ptr", item: "i32", thread: "i32" } as const;
type ItemCode = FunctionCode<typeof itemParams, null>;

/** Shapes of query groups: for runs of one row, and for longer ones; null if the first serves both, or none are longer. */
export function groupShapes(shape: AttentionShape): {
  readonly single: GroupShape;
  readonly longer: GroupShape | null;
} {
  const longer: GroupShape = { ...shape, queries: 4 };
  if (shape.hasLonger && shape.single === 4) return { single: longer, longer: null };
  return { single: { ...shape, queries: shape.single, isMixed: false }, longer: shape.hasLonger ? longer : null };
}

/** Calls `single` for a run of one row, else `longer`. Without `longer`, `single` serves all runs. */
export function callForRun(
  run: Run,
  { single, longer }: { readonly single: ItemCode; readonly longer: ItemCode | null },
  given: Parameters<typeof call<typeof itemParams>>[1],
): Body {
  return longer
    ? [when(i32.eq(run.count, int(1)), [call(single, given)], [call(longer, given)])]
    : [call(single, given)];
}

/** Defines the function that computes an item. */
export function itemFunction(
  name: string,
  shape: GroupShape,
  build: (context: GroupContext, item: Local<"i32">, thread: Local<"i32">) => { body: Body; constants: Body },
): ItemCode {
  return defineFunction(name, itemParams, (params, scope: Scope) => {
    const { fields, statements } = attentionBlock.load(scope, params.args);
    const run = new Run(scope);
    const { body, constants } = build({ shape, fields, scope, run }, params.item, params.thread);
    return [statements, run.load(params.run, fields), constants, body];
  });
}
