/** Instructions by prefix, as in `i32x4.add(a, b)` or `v128.load(address, offset)`. */
import { constant, constant64, type Expr, type Namespace, namespace } from "./expression.ts";

/** Instructions on 32-bit integers: `i32.add(a, b)`, `i32.load(address)`. */
export const i32: Namespace<"i32"> = namespace("i32");
/** Instructions on 64-bit integers. */
export const i64: Namespace<"i64"> = namespace("i64");
/** Instructions on 32-bit floats. */
export const f32: Namespace<"f32"> = namespace("f32");
/** Instructions on 64-bit floats. */
export const f64: Namespace<"f64"> = namespace("f64");
/** Instructions on addresses and sizes: 32 or 64 bits, depending on the module's memory. */
export const ptr: Namespace<"ptr"> = namespace("ptr");
/** Instructions on vectors of 128 bits as a whole: loads, stores and logic. */
export const v128: Namespace<"v128"> = namespace("v128");
/** Instructions on vectors of sixteen 8-bit integers. */
export const i8x16: Namespace<"i8x16"> = namespace("i8x16");
/** Instructions on vectors of eight 16-bit integers. */
export const i16x8: Namespace<"i16x8"> = namespace("i16x8");
/** Instructions on vectors of four 32-bit integers. */
export const i32x4: Namespace<"i32x4"> = namespace("i32x4");
/** Instructions on vectors of four 32-bit floats. */
export const f32x4: Namespace<"f32x4"> = namespace("f32x4");
/** Instructions on memory as a whole, including wait and notify for threads. */
export const memory: Namespace<"memory"> = namespace("memory");

/** A constant of 32 bits. */
export const int = (value: number): Expr<"i32"> => constant("i32", value);
/** A constant of 64 bits. */
export const long = (value: bigint): Expr<"i64"> => constant64(value);
/** A constant 32-bit float. */
export const float = (value: number): Expr<"f32"> => constant("f32", value);
/** A constant 64-bit float. */
export const double = (value: number): Expr<"f64"> => constant("f64", value);
/** A constant address or size. */
export const size = (value: number): Expr<"ptr"> => constant("ptr", value);
