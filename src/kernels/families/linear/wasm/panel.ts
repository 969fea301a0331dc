/** Code that integer GEMV and GEMM share: arguments, initial values of sums, and storing results. */
import { type Body, type Expr, type Local, when, widen } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, i32x4, int, memory, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { elementAt } from "../../../wasm/generate/loops.ts";
import type { PanelShape } from "../../../wasm/generate/packed-panels.ts";
import { loadZeros, unscaleHalves, type VectorConstants, zeroProducts } from "../../../wasm/generate/weight-fields.ts";
import { ArgumentBlock, type FieldsOf } from "../../../wasm/kernel-code.ts";

export const linearBlock = new ArgumentBlock({
  panels: "ptr",
  panelBytes: "ptr",
  correctionOffset: "ptr",
  /** Bytes of the factors of scales in front of a panel. */
  frontBytes: "ptr",
  levels: "ptr",
  /** Quantized activations. */
  records: "ptr",
  scales: "ptr",
  zeros: "ptr",
  y: "ptr",
  /** For each thread: room for the ends of rows, then the unpacked panel of GEMM or the results of GEMV. */
  threadScratch: "ptr",
  threadBytes: "ptr",
  m: "i32",
  n: "i32",
  groups: "i32",
  panelCount: "i32",
  perTile: "i32",
});
export type LinearFields = FieldsOf<typeof linearBlock>;

/** Initial value of a group's sums: seed - zero points * sum of the activations, or `seed` where there are no zero points. */
export function seedOf(
  shape: PanelShape,
  group: Expr<"ptr">,
  part: number,
  quad: number,
  seed: Expr<"v128">,
  sum: Expr<"v128">,
): Expr<"v128"> {
  if (!shape.hasZeros) return seed;
  return i32x4.sub(seed, zeroProducts(shape, loadZeros(shape, group, part, quad), sum));
}

export interface PanelEnd {
  readonly shape: PanelShape;
  readonly fields: LinearFields;
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly thread: Local<"i32">;
  readonly row: Expr<"i32">;
  /** First of the columns of y. */
  readonly column: Expr<"i32">;
  /** Address of the columns' corrections. The panel's biases follow the corrections of all its columns. */
  readonly tail: Expr<"ptr">;
  /** Sums of columns, four to a vector. */
  readonly results: readonly Local<"v128">[];
}

/**
 * Stores y = (sums - zero point * corrections) * scale + bias for columns of a panel, fewer at the end of the matrix. Sums of
 * activations in blocks are scaled already.
 */
export function storePanel(end: PanelEnd): Body {
  const { shape, fields, scope, constants, results, row, tail } = end;
  const scale = scope.local("v128", "row_scale");
  const zero = scope.local("v128", "row_zero");
  const column = scope.local("i32", "column");
  const y = scope.local("ptr", "y_at");
  const finish = results.map((result, r) => {
    const sum = unscaleHalves(shape, result, constants);
    const value = shape.inBlocks ? sum : f32x4.mul(f32x4.sub(sum, f32x4.mul(zero, v128.load(tail, 16 * r))), scale);
    return result.set(shape.hasBias ? f32x4.add(value, v128.load(tail, 4 * shape.rows + 16 * r)) : value);
  });
  const store = (to: Expr<"ptr">) => results.map((result, r) => v128.store(to, result, 16 * r));
  const rest = scope.local("ptr", "rest");
  return [
    shape.inBlocks
      ? []
      : [
          scale.set(v128.load32_splat(elementAt(fields.scales, row, 4))),
          zero.set(v128.load32_splat(elementAt(fields.zeros, row, 4))),
        ],
    finish,
    column.set(end.column),
    y.set(elementAt(elementAt(fields.y, i32.mul(row, fields.n), 4), column, 4)),
    column.set(i32.sub(fields.n, column)),
    when(i32.ge_s(column, int(4 * results.length)), store(y), [
      when(i32.gt_s(column, int(0)), [
        rest.set(elementAt(fields.threadScratch, end.thread, fields.threadBytes)),
        store(rest),
        memory.copy(y, rest, widen(i32.mul(column, int(4)))),
      ]),
    ]),
  ];
}
