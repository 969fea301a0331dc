/** Last phase of split-K: merges the states of a group's chunks, in their order, and writes the results. */
import type { Body, Local } from "../../../wasm/assembler/expression.ts";
import { i32, int } from "../../../wasm/assembler/instructions.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import { type GroupContext, QueryGroup } from "./group.ts";
import { Chunks, forItems, RunSplit, slotOf } from "./item.ts";
import { callForRun, groupShapes, itemFunction } from "./item-code.ts";
import { type AttentionShape, attentionBlock, attentionKey, type GroupShape } from "./shape.ts";

/** All runs are short. An item is a KV head of a run that was split. */
export function mergeCode(shape: AttentionShape): KernelCode {
  const key = `${attentionKey(shape)}_merge`;
  const merge = (name: string, group: GroupShape) => itemFunction(name, group, mergeHead);
  return {
    key,
    build: () => {
      const shapes = groupShapes(shape);
      const codes = {
        single: merge(`${key}_item`, shapes.single),
        longer: shapes.longer && merge(`${key}_longer_item`, shapes.longer),
      };
      const main = kernelFunction(key, attentionBlock, (fields, { args, tile, thread }, scope) =>
        forItems(scope, fields, tile, {
          countItems: (run, items) => {
            const split = new RunSplit({ shape, fields, scope, run });
            const isSplit = i32.gt_u(split.parts, int(1));
            return [split.find(), items.set(i32.mul(isSplit, fields.kvHeads))];
          },
          take: (run, at, item) => callForRun(run, codes, { args, run: at, item, thread }),
        }),
      );
      return [main, codes.single, ...(codes.longer ? [codes.longer] : [])];
    },
  };
}

function mergeHead(context: GroupContext, head: Local<"i32">, thread: Local<"i32">): { body: Body; constants: Body } {
  const { scope, fields, run } = context;
  const group = new QueryGroup(context);
  const chunks = new Chunks(scope);
  const state = scope.local("ptr", "state");
  const slot = scope.local("ptr", "slot");
  return {
    constants: group.constants.prepare,
    body: [
      group.findSizes(),
      group.head.set(head),
      chunks.find(context, int(0), i32.sub(run.count, int(1))),
      state.set(elementAt(fields.scratch, thread, fields.threadBytes)),
      forRange(group.group, int(0), group.groups, [
        group.begin(state),
        slot.set(slotOf(context, group)),
        forRange(scope.local("i32", "chunk"), int(0), chunks.count, [
          group.fold(slot, state),
          advance(slot, fields.slotBytes),
        ]),
        group.find(),
        group.finish(state),
      ]),
    ],
  };
}
