/**
 * Table of WebAssembly instructions, the only place with opcodes. A signature "i32,i32:i32" has operands and result; `ptr` is
 * an address, i32 or i64 depending on the module's memory.
 */

/** Value types; an address is a type of its own, so that sizes and addresses cannot be mixed up. */
export type ValueType = "i32" | "i64" | "f32" | "f64" | "v128" | "ptr";

const simd = (code: number): number => 0xfd000 | code;
const atomic = (code: number): number => 0xfe000 | code;
const bulk = (code: number): number => 0xfc000 | code;

/** Instructions without immediates. */
const plain = {
  return: [0x0f, ":"],
  "i32.eqz": [0x45, "i32:i32"],
  "i32.eq": [0x46, "i32,i32:i32"],
  "i32.ne": [0x47, "i32,i32:i32"],
  "i32.lt_s": [0x48, "i32,i32:i32"],
  "i32.lt_u": [0x49, "i32,i32:i32"],
  "i32.gt_s": [0x4a, "i32,i32:i32"],
  "i32.gt_u": [0x4b, "i32,i32:i32"],
  "i32.le_u": [0x4d, "i32,i32:i32"],
  "i32.ge_s": [0x4e, "i32,i32:i32"],
  "i32.ge_u": [0x4f, "i32,i32:i32"],
  "i64.lt_u": [0x54, "i64,i64:i32"],
  "f32.eq": [0x5b, "f32,f32:i32"],
  "f32.lt": [0x5d, "f32,f32:i32"],
  "f32.gt": [0x5e, "f32,f32:i32"],
  "f32.le": [0x5f, "f32,f32:i32"],
  "f64.ne": [0x62, "f64,f64:i32"],
  "i32.add": [0x6a, "i32,i32:i32"],
  "i32.sub": [0x6b, "i32,i32:i32"],
  "i32.mul": [0x6c, "i32,i32:i32"],
  "i32.div_u": [0x6e, "i32,i32:i32"],
  "i32.rem_u": [0x70, "i32,i32:i32"],
  "i32.and": [0x71, "i32,i32:i32"],
  "i32.or": [0x72, "i32,i32:i32"],
  "i32.xor": [0x73, "i32,i32:i32"],
  "i32.shl": [0x74, "i32,i32:i32"],
  "i32.shr_s": [0x75, "i32,i32:i32"],
  "i32.shr_u": [0x76, "i32,i32:i32"],
  "i64.add": [0x7c, "i64,i64:i64"],
  "i64.sub": [0x7d, "i64,i64:i64"],
  "i64.mul": [0x7e, "i64,i64:i64"],
  "i64.extend_i32_u": [0xad, "i32:i64"],
  "i32.wrap_i64": [0xa7, "i64:i32"],
  "f32.neg": [0x8c, "f32:f32"],
  "f32.sqrt": [0x91, "f32:f32"],
  "f32.add": [0x92, "f32,f32:f32"],
  "f32.sub": [0x93, "f32,f32:f32"],
  "f32.mul": [0x94, "f32,f32:f32"],
  "f32.div": [0x95, "f32,f32:f32"],
  "f32.min": [0x96, "f32,f32:f32"],
  "f32.max": [0x97, "f32,f32:f32"],
  "f32.nearest": [0x90, "f32:f32"],
  "f64.lt": [0x63, "f64,f64:i32"],
  "f64.abs": [0x99, "f64:f64"],
  "f64.neg": [0x9a, "f64:f64"],
  "f64.nearest": [0x9e, "f64:f64"],
  "f64.sqrt": [0x9f, "f64:f64"],
  "f64.add": [0xa0, "f64,f64:f64"],
  "f64.sub": [0xa1, "f64,f64:f64"],
  "f64.mul": [0xa2, "f64,f64:f64"],
  "f64.div": [0xa3, "f64,f64:f64"],
  "i32.trunc_f32_s": [0xa8, "f32:i32"],
  "i32.trunc_f64_s": [0xaa, "f64:i32"],
  "f32.convert_i32_s": [0xb2, "i32:f32"],
  "f32.demote_f64": [0xb6, "f64:f32"],
  "f64.convert_i32_s": [0xb7, "i32:f64"],
  "f64.convert_i64_s": [0xb9, "i64:f64"],
  "f64.promote_f32": [0xbb, "f32:f64"],
  "f32.reinterpret_i32": [0xbe, "i32:f32"],
  "i32.reinterpret_f32": [0xbc, "f32:i32"],
  "ptr.add": [0x6a, "ptr,ptr:ptr"],
  "ptr.sub": [0x6b, "ptr,ptr:ptr"],
  "ptr.mul": [0x6c, "ptr,ptr:ptr"],
  "ptr.lt_u": [0x49, "ptr,ptr:i32"],
  "i8x16.swizzle": [simd(14), "v128,v128:v128"],
  "i8x16.splat": [simd(15), "i32:v128"],
  "i16x8.splat": [simd(16), "i32:v128"],
  "i32x4.splat": [simd(17), "i32:v128"],
  "f32x4.splat": [simd(19), "f32:v128"],
  "i32x4.eq": [simd(55), "v128,v128:v128"],
  "f32x4.ne": [simd(66), "v128,v128:v128"],
  "f32x4.lt": [simd(67), "v128,v128:v128"],
  "f32x4.gt": [simd(68), "v128,v128:v128"],
  "i32x4.gt_u": [simd(60), "v128,v128:v128"],
  "i32x4.lt_u": [simd(58), "v128,v128:v128"],
  "v128.and": [simd(78), "v128,v128:v128"],
  "v128.andnot": [simd(79), "v128,v128:v128"],
  "v128.or": [simd(80), "v128,v128:v128"],
  "v128.xor": [simd(81), "v128,v128:v128"],
  "v128.bitselect": [simd(82), "v128,v128,v128:v128"],
  "v128.any_true": [simd(83), "v128:i32"],
  "i8x16.narrow_i16x8_s": [simd(101), "v128,v128:v128"],
  "f32x4.nearest": [simd(106), "v128:v128"],
  "i8x16.add": [simd(110), "v128,v128:v128"],
  "i8x16.sub": [simd(113), "v128,v128:v128"],
  "i16x8.narrow_i32x4_s": [simd(133), "v128,v128:v128"],
  "i16x8.extadd_pairwise_i8x16_s": [simd(124), "v128:v128"],
  "i32x4.extadd_pairwise_i16x8_s": [simd(126), "v128:v128"],
  "i16x8.extend_low_i8x16_s": [simd(135), "v128:v128"],
  "i16x8.extend_high_i8x16_s": [simd(136), "v128:v128"],
  "i16x8.shl": [simd(139), "v128,i32:v128"],
  "i16x8.shr_s": [simd(140), "v128,i32:v128"],
  "i16x8.shr_u": [simd(141), "v128,i32:v128"],
  "i16x8.all_true": [simd(131), "v128:i32"],
  "i16x8.add": [simd(142), "v128,v128:v128"],
  "i16x8.min_u": [simd(151), "v128,v128:v128"],
  "i32x4.extend_low_i16x8_s": [simd(167), "v128:v128"],
  "i32x4.extend_high_i16x8_s": [simd(168), "v128:v128"],
  "i32x4.gt_s": [simd(59), "v128,v128:v128"],
  "i32x4.lt_s": [simd(57), "v128,v128:v128"],
  "i32x4.shl": [simd(171), "v128,i32:v128"],
  "i32x4.shr_s": [simd(172), "v128,i32:v128"],
  "i32x4.shr_u": [simd(173), "v128,i32:v128"],
  "i32x4.add": [simd(174), "v128,v128:v128"],
  "i32x4.sub": [simd(177), "v128,v128:v128"],
  "i32x4.mul": [simd(181), "v128,v128:v128"],
  "i32x4.min_s": [simd(182), "v128,v128:v128"],
  "i32x4.max_s": [simd(184), "v128,v128:v128"],
  "i32x4.max_u": [simd(185), "v128,v128:v128"],
  "i32x4.dot_i16x8_s": [simd(186), "v128,v128:v128"],
  "f32x4.abs": [simd(224), "v128:v128"],
  "f32x4.neg": [simd(225), "v128:v128"],
  "f32x4.sqrt": [simd(227), "v128:v128"],
  "f32x4.add": [simd(228), "v128,v128:v128"],
  "f32x4.sub": [simd(229), "v128,v128:v128"],
  "f32x4.mul": [simd(230), "v128,v128:v128"],
  "f32x4.div": [simd(231), "v128,v128:v128"],
  "f32x4.min": [simd(232), "v128,v128:v128"],
  "f32x4.max": [simd(233), "v128,v128:v128"],
  "f32x4.pmin": [simd(234), "v128,v128:v128"],
  "f32x4.pmax": [simd(235), "v128,v128:v128"],
  "i32x4.trunc_sat_f32x4_s": [simd(248), "v128:v128"],
  "f32x4.convert_i32x4_s": [simd(250), "v128:v128"],
  "f32x4.relaxed_madd": [simd(0x105), "v128,v128,v128:v128"],
  "i16x8.relaxed_dot_i8x16_i7x16_s": [simd(0x112), "v128,v128:v128"],
  "i32x4.relaxed_dot_i8x16_i7x16_add_s": [simd(0x113), "v128,v128,v128:v128"],
} as const;

/** Loads and stores: an address as first operand and a constant offset; the third entry is log2 of the natural alignment. */
const memory = {
  "i32.load": [0x28, "ptr:i32", 2],
  "i64.load": [0x29, "ptr:i64", 3],
  "f32.load": [0x2a, "ptr:f32", 2],
  "f64.load": [0x2b, "ptr:f64", 3],
  "i32.load8_s": [0x2c, "ptr:i32", 0],
  "i32.load8_u": [0x2d, "ptr:i32", 0],
  "i32.load16_s": [0x2e, "ptr:i32", 1],
  "i32.load16_u": [0x2f, "ptr:i32", 1],
  "i32.store": [0x36, "ptr,i32:", 2],
  "i64.store": [0x37, "ptr,i64:", 3],
  "f32.store": [0x38, "ptr,f32:", 2],
  "f64.store": [0x39, "ptr,f64:", 3],
  "i32.store8": [0x3a, "ptr,i32:", 0],
  "i32.store16": [0x3b, "ptr,i32:", 1],
  "ptr.load": [0x28, "ptr:ptr", 2],
  "v128.load": [simd(0), "ptr:v128", 4],
  "v128.load8x8_s": [simd(1), "ptr:v128", 3],
  "v128.load16x4_s": [simd(3), "ptr:v128", 3],
  "v128.load16x4_u": [simd(4), "ptr:v128", 3],
  "v128.load32_splat": [simd(9), "ptr:v128", 2],
  "v128.load32_zero": [simd(92), "ptr:v128", 2],
  "v128.load64_zero": [simd(93), "ptr:v128", 3],
  "v128.store": [simd(11), "ptr,v128:", 4],
  "memory.atomic.notify": [atomic(0x00), "ptr,i32:i32", 2],
  "memory.atomic.wait32": [atomic(0x01), "ptr,i32,i64:i32", 2],
  "i32.atomic.load": [atomic(0x10), "ptr:i32", 2],
  "i32.atomic.store": [atomic(0x17), "ptr,i32:", 2],
  "i32.atomic.rmw.add": [atomic(0x1e), "ptr,i32:i32", 2],
  "i32.atomic.rmw.sub": [atomic(0x25), "ptr,i32:i32", 2],
} as const;

/** Instructions with a lane index. */
const lane = {
  "i32x4.extract_lane": [simd(27), "v128:i32"],
  "i32x4.replace_lane": [simd(28), "v128,i32:v128"],
  "f32x4.extract_lane": [simd(31), "v128:f32"],
  "f32x4.replace_lane": [simd(32), "v128,f32:v128"],
} as const;

/** Loads and stores of a lane: an address, an offset and a lane index. */
const memoryLane = {
  "v128.store64_lane": [simd(91), "ptr,v128:", 3],
  "v128.store32_lane": [simd(90), "ptr,v128:", 2],
} as const;

/** Instructions with two memory indices, both of the only memory: destination, source, byte count. */
const memoryPair = {
  "memory.copy": [bulk(10), "ptr,ptr,ptr:"],
} as const;

/** Kinds of immediates. */
export type Immediate = "none" | "memory" | "lane" | "memoryLane" | "memoryPair";

const tables = { none: plain, memory, lane, memoryLane, memoryPair } as const;
type Tables = typeof tables;

/** Names of the instructions with a kind of immediates. */
export type NameWith<I extends Immediate> = keyof Tables[I] & string;
export type OpName = { [I in Immediate]: NameWith<I> }[Immediate];

/** The signature of an instruction as written in the table. */
export type SignatureOf<N extends OpName> = {
  [I in Immediate]: N extends keyof Tables[I]
    ? Tables[I][N] extends readonly [number, infer S, ...unknown[]]
      ? S
      : never
    : never;
}[Immediate];

/** Type-level split: "i32,ptr" to [ "i32", "ptr" ]. */
type Split<S> = S extends "" ? [] : S extends `${infer First},${infer Rest}` ? [First, ...Split<Rest>] : [S];
export type OperandsOf<S> = S extends `${infer In}:${string}` ? Split<In> : never;
export type ResultOf<S> = S extends `${string}:${infer Out}` ? Out : never;

export interface Opcode {
  /** Opcode byte, or prefix byte and number. */
  readonly code: number;
  readonly immediate: Immediate;
  readonly align: number;
  /** Type of the result; null without one. */
  readonly result: ValueType | null;
}

/** All instructions by name. */
export const opcodes: ReadonlyMap<string, Opcode> = new Map(
  Object.entries(tables).flatMap(([immediate, table]) =>
    Object.entries(table as Record<string, readonly [number, string, number?]>).map(
      ([name, [code, signature, align = 0]]): [string, Opcode] => {
        const result = signature.slice(signature.indexOf(":") + 1) as ValueType | "";
        return [name, { code, immediate: immediate as Immediate, align, result: result === "" ? null : result }];
      },
    ),
  ),
);

/** Binary encodings of types. */
export const typeCodes: Readonly<Record<Exclude<ValueType, "ptr">, number>> = {
  i32: 0x7f,
  i64: 0x7e,
  f32: 0x7d,
  f64: 0x7c,
  v128: 0x7b,
};

/** Opcodes of control structures, locals and constants, which have node kinds of their own. */
export const structure = {
  unreachable: 0x00,
  block: 0x02,
  loop: 0x03,
  if: 0x04,
  else: 0x05,
  end: 0x0b,
  br: 0x0c,
  brIf: 0x0d,
  call: 0x10,
  callIndirect: 0x11,
  drop: 0x1a,
  select: 0x1c,
  localGet: 0x20,
  localSet: 0x21,
  localTee: 0x22,
  i32Const: 0x41,
  i64Const: 0x42,
  f32Const: 0x43,
  f64Const: 0x44,
  v128Const: simd(12),
  shuffle: simd(13),
  noResult: 0x40,
  functionType: 0x60,
  functionReference: 0x70,
} as const;
