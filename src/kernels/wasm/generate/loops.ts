/** Small statements that generators share. */
import {
  type Body,
  doWhile,
  type Expr,
  type Local,
  type Statement,
  when,
  whileDo,
  widen,
} from "../assembler/expression.ts";
import { i32, int, ptr, size } from "../assembler/instructions.ts";

/** Counts in a loop: `variable = from; while (variable < to) { body; variable += step }`. */
export function forRange(variable: Local<"i32">, from: Expr<"i32">, to: Expr<"i32">, body: Body, step = 1): Body {
  return [variable.set(from), whileDo(i32.lt_u(variable, to), [body, variable.set(i32.add(variable, int(step)))])];
}

/** Runs the body `count` times, at least once; `variable` counts down. */
export function repeat(variable: Local<"i32">, count: Expr<"i32">, body: Body): Body {
  return [variable.set(count), doWhile(body, variable.tee(i32.sub(variable, int(1))))];
}

/** Advances a pointer: `pointer += bytes`. */
export function advance(pointer: Local<"ptr">, bytes: number | Expr<"ptr">): Statement {
  return pointer.set(ptr.add(pointer, typeof bytes === "number" ? size(bytes) : bytes));
}

/** The address `base + index * stride`, computed in 64 bits where addresses have 64. */
export function elementAt(base: Expr<"ptr">, index: Expr<"i32">, stride: number | Expr<"ptr">): Expr<"ptr"> {
  return ptr.add(base, ptr.mul(widen(index), typeof stride === "number" ? size(stride) : stride));
}

/** Sets `target` to the smaller of two unsigned numbers. */
export function smaller(a: Local<"i32">, b: Local<"i32">, target: Local<"i32">): Statement {
  return target.set({
    type: "i32",
    node: { kind: "select", type: "i32", operands: [a.node, b.node, i32.lt_u(a, b).node] },
  });
}

/** Calls `run` for all of some rows, `most` at a time, and at the end once for those that are left. */
export function forRows(row: Local<"i32">, rows: Expr<"i32">, most: number, run: (count: number) => Statement): Body {
  const rest = Array.from({ length: most - 1 }, (_, i) => i + 1);
  return [
    forRange(row, int(0), i32.sub(rows, i32.rem_u(rows, int(most))), [run(most)], most),
    rest.map((count) => when(i32.eq(i32.sub(rows, row), int(count)), [run(count), row.set(rows)])),
  ];
}
