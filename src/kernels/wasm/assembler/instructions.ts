/** The instructions by their prefixes, as in `i32x4.add(a, b)` or `v128.load(address, offset)`. */
import { constant, constant64, type Expr, type Namespace, namespace } from "./expression.ts";

export const i32: Namespace<"i32"> = namespace("i32");
export const i64: Namespace<"i64"> = namespace("i64");
export const f32: Namespace<"f32"> = namespace("f32");
export const f64: Namespace<"f64"> = namespace("f64");
export const ptr: Namespace<"ptr"> = namespace("ptr");
export const v128: Namespace<"v128"> = namespace("v128");
export const i8x16: Namespace<"i8x16"> = namespace("i8x16");
export const i16x8: Namespace<"i16x8"> = namespace("i16x8");
export const i32x4: Namespace<"i32x4"> = namespace("i32x4");
export const f32x4: Namespace<"f32x4"> = namespace("f32x4");
export const memory: Namespace<"memory"> = namespace("memory");

/** Constants. */
export const int = (value: number): Expr<"i32"> => constant("i32", value);
export const long = (value: bigint): Expr<"i64"> => constant64(value);
export const float = (value: number): Expr<"f32"> => constant("f32", value);
export const double = (value: number): Expr<"f64"> => constant("f64", value);
export const size = (value: number): Expr<"ptr"> => constant("ptr", value);
