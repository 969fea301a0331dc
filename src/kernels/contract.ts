/** Types only: CPUs, packed layouts and kernels. Dispatch, tests, benchmarks and docs iterate over tables of these. */
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import type { SizeRange, Sizes } from "./affine.ts";
import type { Placement, WasmStep } from "./wasm/kernel-code.ts";

/**
 * Instruction-set features that kernels may need. WebAssembly's are probed: `relaxed_dot` and `relaxed_dot16` mean that the
 * relaxed int8 dot products, to 32 and 16 bits, are correct on this engine; `split_dot` means that the first is wrong or takes
 * several instructions while the second takes one.
 */
export type CpuFeature =
  | "simd128"
  | "relaxed_dot"
  | "relaxed_dot16"
  | "split_dot"
  | "sse2"
  | "avx2"
  | "avx_vnni"
  | "avx512"
  | "avx512_vnni"
  | "avx512_vbmi"
  | "avx512_bf16"
  | "amx_int8"
  | "amx_bf16"
  | "neon"
  | "dotprod"
  | "i8mm"
  | "bf16"
  | "sme2";

/** A CPU as kernel selection sees it; it may be hypothetical, to export for or test other machines. */
export interface Cpu {
  /** The CPU's name as `knownCpus` lists it, or "host" for the one that runs this. */
  readonly name: string;
  /** Features that kernels may use. */
  readonly features: ReadonlySet<CpuFeature>;
}

/** Backend of a kernel. */
export type KernelTarget = "reference" | "wasm" | "native";

/** A limit on group length: calls with at least `m` rows of activations need groups of at most `longest` weights. */
export interface GroupLimit {
  /** Least number of rows of activations that the limit applies to. */
  readonly m: number;
  /** Weights of the longest supported group. */
  readonly longest: number;
}

/**
 * One kernel: a row of data. `A` is the argument type of its operator family.
 * Stateless: no threads, logging or validation inside; the caller owns every buffer.
 */
export interface Kernel<A> {
  /** Name in the form `<operator>_<types>_<m>x<n>x<k>_<target>`, such as `linear_a8_wx_1x1x1_reference`. */
  readonly name: string;
  /** Backend of the kernel. */
  readonly target: KernelTarget;
  /** Names of the packed layouts it reads, or null for operators without packed weights. */
  readonly layouts: readonly string[] | null;
  /** Weight bits it accepts, or null for operators without packed weights. */
  readonly bits: readonly number[] | null;
  /** CPU features without which the kernel cannot run. */
  readonly needs: readonly CpuFeature[];
  /** Rows of its tile; a kernel serves calls with m >= mStep, however large, unless a kernel before it in the table does. */
  readonly mStep: number;
  /** Columns of its tile. */
  readonly nStep: number;
  /** Limits on group length, of which one must be met; absent when groups may have any length. */
  readonly groups?: readonly GroupLimit[];
  /** Whether it supports minima and all factored scales; absent when it does not. */
  readonly readsMinima?: boolean;
  /** Whether it supports factored integer scales without minima; absent when it does not. */
  readonly readsFactors?: boolean;
  /**
   * Bytes of scratch memory for a run with these arguments on so many threads, for any alignment of the memory; none when
   * absent.
   */
  scratchBytes?(args: A, threads: number): number;
  /**
   * Binds the arguments of a call and returns a function that runs it. All views are made here, so that running it allocates
   * nothing.
   */
  bind(args: A, scratch: Uint8Array, threads: number): () => void;
  /** Encodes the call as data for a plan, if its backend can run it in a sequence of calls without returning to JavaScript. */
  encode?(args: A, scratch: Uint8Array): NativeCall | WasmCall;
}

/** A call of a native kernel as data: numbers and buffers in the order that the kernel's family declares. */
export interface NativeCall {
  /** Distinguishes native calls from those of WebAssembly. */
  readonly target: "native";
  /** Index of the kernel in the addon's table. */
  readonly kernel: number;
  /** Numbers in the order of the family. */
  readonly scalars: readonly number[];
  /** Buffers in the order of the family, then the scratch memory. */
  readonly buffers: readonly ArrayBufferView[];
  /** Slopes [sizes, scalars]: the increase of each number when one of a plan's sizes grows by 1; absent if all are constant. */
  readonly slopes?: Float64Array;
}

/** A call of a WebAssembly kernel, whose code and arguments are made when its addresses are known. */
interface WasmCall {
  /** Distinguishes calls of WebAssembly from native ones. */
  readonly target: "wasm";
  /** Scratch memory of the call. */
  readonly scratch: Uint8Array;
  /** Makes the plan's step, once the addresses of the call's arrays are known. */
  prepare(place: Placement): WasmStep;
}

/** A call as data, for a plan of its backend. */
export type EncodedCall = NativeCall | WasmCall;

export interface CallPlan {
  /**
   * Runs the calls off the JavaScript thread where there are threads. Setting `abort[0]` to 1 ends the run early. The time of
   * each call is added to its element of `nanoseconds`, if given.
   */
  run(abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
  /** Runs the plan with this thread taking part, and returns when it has ended; absent where this thread cannot take part. */
  runHere?(nanoseconds?: Float64Array): void;
  /**
   * Changes the calls to other sizes, for plans of sized calls that are not running. Returns false, changing nothing, if their
   * scratch memory is too small.
   */
  resize?(sizes: Sizes): boolean;
  /** Frees the plan's memory. */
  dispose(): void;
}

/** The calls of a plan as a function of the sizes. At the smallest sizes they are those that the plan is made with. */
export interface SizedCalls {
  /** Supported sizes. */
  readonly range: SizeRange;
  /** The call at an index for these sizes; null if its scratch memory is too small. */
  at(index: number, sizes: Sizes): EncodedCall | null;
}

export interface KernelMemory {
  /** Whether constants must be copied into this memory; otherwise they are used where they were read or mapped. */
  readonly holdsConstants: boolean;
  /** Number of its kernel threads, if it has threads of its own. */
  readonly threads?: number;
  /** Abort flag of `CallPlan.run`: 1 ends a run. */
  readonly abort: Int32Array;
  /** Allocates zeroed bytes; RangeError or UnsupportedError when there is no memory. */
  allocate(byteLength: number): Uint8Array;
  /** Frees bytes of `allocate` that are no longer used. */
  free(bytes: Uint8Array): void;
  /** Address of bytes of `allocate` in the kernels' address space; 0 if no kernel needs it, since all take pages as arrays. */
  addressOf(bytes: Uint8Array): bigint;
  /**
   * Returns the pages of bytes of `allocate` to the system, if possible, until they are written again; their contents are
   * undefined until then.
   */
  discard(bytes: Uint8Array): void;
  /** Declares that single rows of a constant are read in no order, so that a mapped file is not read ahead. */
  readByRows?(bytes: Uint8Array): void;
  /** Makes a plan of calls of one backend that run in order. `sized`: the calls for other sizes. */
  planCalls(calls: readonly EncodedCall[], threads: number, sized?: SizedCalls): CallPlan;
  /** Resolves when everything is freed. */
  dispose(): Promise<void>;
}

/** Properties of a call by which a kernel is selected. */
export interface KernelQuery {
  /** Packed layout of the weights; null for operators without packed weights. */
  readonly layout: string | null;
  /** Bits of a weight; null for operators without weights. */
  readonly bits: number | null;
  /** Rows of activations. */
  readonly m: number;
  /** Group size in weights; absent without groups. */
  readonly group?: number;
  /** Whether groups have minima or e4m3 scales; absent when they have neither. */
  readonly hasMinima?: boolean;
  /** Whether scales are factored integers, without minima; absent when not. */
  readonly hasFactors?: boolean;
}

/** One row of packed weights, as stored: integers before any codebook. */
export interface WeightRow {
  /** Integers [k] of the row. */
  readonly qvals: Int8Array;
  /** Scales [groups] of the row. */
  readonly scales: Float32Array;
  /** Zero points [groups] of the row; zeros where the weights have none. */
  readonly zeros: Int8Array;
  /** Minima [groups] of the row; zeros where the weights have none. */
  readonly minima: Float32Array;
}

/** Packed weights in memory, with their parsed header. */
export interface PackedWeights {
  /** Layout of the bytes. */
  readonly layout: PackedLayout;
  /** Shape, bits, group size and other properties of the weights, from the header. */
  readonly spec: WeightSpec;
  /** Whether a bias [n] is packed with the weights. */
  readonly hasBias: boolean;
  /** Codebook [2^bits], or null without one. */
  readonly levels: Int8Array | null;
  /** The whole buffer, header included. */
  readonly bytes: Uint8Array;
}

/** The buffer that weights are packed to. */
export interface PackTarget {
  /** Shape, bits, group size and other properties of the weights. */
  readonly spec: WeightSpec;
  /** Bias [n], or null without one. */
  readonly bias: Float32Array | null;
  /** Zeroed buffer of the layout's `byteLength`, aligned to four bytes. */
  readonly target: Uint8Array;
}

/** Packs weights some rows at a time, so that they are never whole in memory. */
export interface LayoutPacker {
  /** Packs a part of the weights whose first row is `firstRow`, a multiple of the layout's nr. Each row is added once. */
  add(part: QuantizedWeights, firstRow: number): void;
  /** Completes the buffer after the last part. */
  finish(): void;
}

/** A byte layout of quantized weights. Its id is written in the header, so that packed bytes name their own layout. */
export interface PackedLayout {
  /** Number of the layout in the header of packed weights. */
  readonly id: number;
  /** Name of the layout, as `lowbit kernels` shows it. */
  readonly name: string;
  /** Features of the CPUs that the layout is made for; absent if it is for all. */
  readonly suits?: readonly CpuFeature[];
  /** Rows of a panel. */
  readonly nr: number;
  /** Consecutive weights of a row that are adjacent in a vector. */
  readonly kr: number;
  /** Segments that `kr` consecutive weights are divided into. */
  readonly sr: number;
  /** Whether the buffer is a header followed by panels in order, so that panels can be packed in parts. */
  readonly isOfPanels: boolean;
  /** Why weights of this spec cannot be stored in the layout; null when they can. */
  refusal(spec: WeightSpec): string | null;
  /** The spec with columns added so that `refusal` accepts k; absent where every k is supported. */
  padded?(spec: WeightSpec): WeightSpec;
  /** Bytes of the buffer, header included. */
  byteLength(spec: WeightSpec, hasBias: boolean): number;
  /** Makes a packer that fills the buffer of a matrix, some rows at a time. */
  packer(target: PackTarget): LayoutPacker;
  /** Reads one row of packed weights back into `target`. */
  readRow(packed: PackedWeights, row: number, target: WeightRow): void;
  /** Reads the bias of one row; 0 without a bias. */
  readBias(packed: PackedWeights, row: number): number;
}

/** What reference kernels have in common, but for those of packed weights. */
export const referenceRow = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;
