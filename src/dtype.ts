/** Element types of tensors and the typed arrays that hold them. */

const arrays = {
  f64: Float64Array,
  f32: Float32Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
  i32: Int32Array,
  u32: Uint32Array,
  i16: Int16Array,
  u16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
  bool: Uint8Array,
} as const;

/** Element type. `f16` and `bf16` are held as bit patterns in a Uint16Array. */
export type DType = keyof typeof arrays;

interface Arrays {
  /** Doubles. */
  f64: Float64Array;
  /** Single-precision floats. */
  f32: Float32Array;
  /** Bits of half-precision floats. */
  f16: Uint16Array;
  /** Bits of bfloat16 numbers. */
  bf16: Uint16Array;
  /** Signed integers of 64 bits. */
  i64: BigInt64Array;
  /** Unsigned integers of 64 bits. */
  u64: BigUint64Array;
  /** Signed integers of 32 bits. */
  i32: Int32Array;
  /** Unsigned integers of 32 bits. */
  u32: Uint32Array;
  /** Signed integers of 16 bits. */
  i16: Int16Array;
  /** Unsigned integers of 16 bits. */
  u16: Uint16Array;
  /** Signed bytes. */
  i8: Int8Array;
  /** Unsigned bytes. */
  u8: Uint8Array;
  /** Bytes that are 0 for false and 1 for true. */
  bool: Uint8Array;
}

/** A typed array that holds elements of some dtype. */
export type TypedArray = Arrays[DType];
export type ArrayOf<D extends DType> = Arrays[D];

export const dtypes: readonly DType[] = Object.keys(arrays) as DType[];

/** Bytes of one element. */
export function byteSize(dtype: DType): number {
  return arrays[dtype].BYTES_PER_ELEMENT;
}

/** A typed view of `length` elements at `byteOffset`, which must be a multiple of the element size. */
export function viewOf<D extends DType>(
  dtype: D,
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
): ArrayOf<D> {
  const View = arrays[dtype] as unknown as new (b: ArrayBufferLike, o: number, n: number) => ArrayOf<D>;
  return new View(buffer, byteOffset, length);
}

/** A zeroed array of `length` elements. */
export function zeros<D extends DType>(dtype: D, length: number): ArrayOf<D> {
  const Zeros = arrays[dtype] as unknown as new (n: number) => ArrayOf<D>;
  return new Zeros(length);
}
