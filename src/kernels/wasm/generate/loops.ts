/** Small statements that generators share. */
import { type Body, doWhile, type Expr, type Local, type Statement, whileDo, widen } from "../assembler/expression.ts";
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

/** target = the smaller of two unsigned numbers. */
export function smaller(a: Local<"i32">, b: Local<"i32">, target: Local<"i32">): Statement {
  return target.set({
    type: "i32",
    node: { kind: "select", type: "i32", operands: [a.node, b.node, i32.lt_u(a, b).node] },
  });
}
