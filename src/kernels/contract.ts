/** Types only: what a CPU, a packed layout and a kernel are. Dispatch, tests, benchmarks and docs iterate over rows of these. */
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import type { SizeRange, Sizes } from "./affine.ts";
import type { Placement, WasmStep } from "./wasm/kernel-code.ts";

/**
 * Instruction-set features that kernels may need. WebAssembly's are probed: `relaxed_dot` and `relaxed_dot16` are right on
 * this engine, and with `split_dot` the first is wrong or several instructions, of which the second is one.
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

/** A CPU as selection sees it; invented ones serve to export for, or to test, machines that are not here. */
export interface Cpu {
  /** The CPU's name as `knownCpus` lists it, or "host" for the one that runs this. */
  readonly name: string;
  /** Features of the CPU that kernels may need. */
  readonly features: ReadonlySet<CpuFeature>;
}

/** Where a kernel's code comes from. */
export type KernelTarget = "reference" | "wasm" | "native";

/** In calls with at least `m` rows of activations, groups of at most `longest` weights. */
export interface GroupLimit {
  /** Rows of activations from which on the limit holds. */
  readonly m: number;
  /** Weights of the longest group that is served. */
  readonly longest: number;
}

/**
 * One kernel: a row of data. `A` is the argument type of its operator family.
 * Stateless: no threads, logging or validation inside; the caller owns every buffer.
 */
export interface Kernel<A> {
  /** Name in the form `<operator>_<types>_<m>x<n>x<k>_<target>`, such as `linear_a8_wx_1x1x1_reference`. */
  readonly name: string;
  /** Origin of the kernel's code. */
  readonly target: KernelTarget;
  /** Names of the packed layouts it reads, or null for operators without packed weights. */
  readonly layouts: readonly string[] | null;
  /** Weight bits it accepts, or null for operators without packed weights. */
  readonly bits: readonly number[] | null;
  /** CPU features without which the kernel cannot run. */
  readonly needs: readonly CpuFeature[];
  /** Rows and columns of its tile; a kernel serves calls with m >= mStep, however large, where no row before it does. */
  readonly mStep: number;
  /** Columns of the result that the kernel computes together. */
  readonly nStep: number;
  /** Groups of weights that it serves, within any of these; absent when it serves groups of any length. */
  readonly groups?: readonly GroupLimit[];
  /** Whether it reads minima, and all scales that have factors; absent when it does not. */
  readonly readsMinima?: boolean;
  /** Whether it reads scales that are integers with factors, where there are no minima; absent when it does not. */
  readonly readsFactors?: boolean;
  /**
   * Temporary bytes that a run on so many threads uses, for these arguments, wherever in memory they begin; none when
   * absent.
   */
  scratchBytes?(args: A, threads: number): number;
  /**
   * Fixes the arguments of a call and gives a function that runs it. All views are made here: running it allocates
   * nothing.
   */
  bind(args: A, scratch: Uint8Array, threads: number): () => void;
  /** Gives the call as data for a plan, when its target can run it among others without coming back. */
  encode?(args: A, scratch: Uint8Array): NativeCall | WasmCall;
}

/** A call of a native kernel: numbers and memory in the order that the kernel's family documents. */
export interface NativeCall {
  /** Tells native calls from those of WebAssembly. */
  readonly target: "native";
  /** Index of the kernel in the addon's table. */
  readonly kernel: number;
  /** Numbers that the kernel takes, in the order of its family. */
  readonly scalars: readonly number[];
  /** Buffers that the kernel reads and writes; the scratch is the last one. */
  readonly buffers: readonly ArrayBufferView[];
  /** Steps [sizes, scalars] by which each number grows where one of a plan's sizes grows by 1; absent where all stay. */
  readonly slopes?: Float64Array;
}

/** A call of a WebAssembly kernel, whose code and arguments are made when its memory is known. */
interface WasmCall {
  /** Tells calls of WebAssembly from native ones. */
  readonly target: "wasm";
  /** Memory that the call may write while it runs. */
  readonly scratch: Uint8Array;
  /** Makes the step of a plan, once it is known where the call's memory lies. */
  prepare(place: Placement): WasmStep;
}

/** A call as data, for a plan of its target. */
export type EncodedCall = NativeCall | WasmCall;

export interface CallPlan {
  /**
   * Runs the calls off the JavaScript thread where there are threads. `abort[0]` set to 1 meanwhile ends it early. What
   * each call took is added to `nanoseconds`, one element a call, when it is given.
   */
  run(abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
  /**
   * Runs the plan with this thread at work too, and has ended when it returns; absent where this thread cannot work.
   */
  runHere?(nanoseconds?: Float64Array): void;
  /**
   * Makes the calls those of other sizes, for plans of sized calls that are not running. False, and nothing is changed,
   * where their scratch is too small.
   */
  resize?(sizes: Sizes): boolean;
  /** Frees what the plan holds. */
  dispose(): void;
}

/** The calls of a plan for all sizes of a range. At the smallest they are those that the plan is made of. */
export interface SizedCalls {
  /** Sizes that the calls serve. */
  readonly range: SizeRange;
  /** Null where the scratch is too small. */
  at(index: number, sizes: Sizes): EncodedCall | null;
}

export interface KernelMemory {
  /** Whether constants must be in it too; elsewhere they are used where they are read or mapped. */
  readonly holdsConstants: boolean;
  /** Threads that this memory has for kernels, where it has threads of its own. */
  readonly threads?: number;
  /** Flag that `CallPlan.run` looks at: 1 ends a run. */
  readonly abort: Int32Array;
  /** Gives zeroed bytes; RangeError or UnsupportedError when they cannot be had. */
  allocate(byteLength: number): Uint8Array;
  /** Takes back bytes that `allocate` gave and nothing uses any more. */
  free(bytes: Uint8Array): void;
  /**
   * Address of bytes that `allocate` gave, as kernels see them; 0 where no kernel asks, since all take pages as bytes.
   */
  addressOf(bytes: Uint8Array): bigint;
  /**
   * Gives the memory behind bytes that `allocate` gave back to the system, as far as it can, until they are written again;
   * what they hold until then is undefined.
   */
  discard(bytes: Uint8Array): void;
  /** Says that rows of a constant are read here and there, so that no more of a mapped file comes into memory than they are. */
  readByRows?(bytes: Uint8Array): void;
  /** Plans calls that can be run one after the other, all of the same target. `sized`: the same for other sizes. */
  planCalls(calls: readonly EncodedCall[], threads: number, sized?: SizedCalls): CallPlan;
  /** Resolves when everything is freed. */
  dispose(): Promise<void>;
}

/** What selection knows of a call. */
export interface KernelQuery {
  /** Layout of the packed weights; null for operators without. */
  readonly layout: string | null;
  /** Bits of a weight; null for operators without weights. */
  readonly bits: number | null;
  /** Rows of activations. */
  readonly m: number;
  /** Weights of a group; absent where there are no groups. */
  readonly group?: number;
  /** Whether groups have minima, or scales that are 8-bit floats; absent when they have not. */
  readonly hasMinima?: boolean;
  /** Whether scales are integers with factors, and there are no minima; absent when not. */
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

/** Packed weights in memory: bytes that say what they are, opened. */
export interface PackedWeights {
  /** Layout of the bytes. */
  readonly layout: PackedLayout;
  /** Sizes and kinds of the weights, as the header says them. */
  readonly spec: WeightSpec;
  /** Whether a bias [n] is packed with the weights. */
  readonly hasBias: boolean;
  /** Codebook [2^bits], or null without one. */
  readonly levels: Int8Array | null;
  /** The whole buffer, header included. */
  readonly bytes: Uint8Array;
}

/** Where weights are packed to. */
export interface PackTarget {
  /** Sizes and kinds of the weights. */
  readonly spec: WeightSpec;
  /** Bias [n], or null without one. */
  readonly bias: Float32Array | null;
  /** Zeroed buffer of the layout's `byteLength`, at a multiple of four bytes. */
  readonly target: Uint8Array;
}

/** Packs weights some rows at a time, so that they need never be whole in memory. */
export interface LayoutPacker {
  /** Packs rows `firstRow ..` of the weights; `firstRow` is a multiple of the layout's nr. Each row is added once. */
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
  /** Features of the CPUs that it is made for; absent when it is for all. */
  readonly suits?: readonly CpuFeature[];
  /** Rows of a panel. */
  readonly nr: number;
  /** Consecutive weights of a row that stand together in a vector. */
  readonly kr: number;
  /** Segments that `kr` consecutive weights are divided into. */
  readonly sr: number;
  /** Whether the buffer is a header of this package and then panels in turn, so that panels can be packed in parts. */
  readonly isOfPanels: boolean;
  /** Says why weights of this spec cannot be stored; null when they can. */
  refusal(spec: WeightSpec): string | null;
  /** Adds columns to the spec so that `refusal` has nothing against k; absent where every k is stored as it is. */
  padded?(spec: WeightSpec): WeightSpec;
  /** Size of the buffer, header included. */
  byteLength(spec: WeightSpec, hasBias: boolean): number;
  /** Makes a packer that fills the bytes of a matrix, some rows at a time. */
  packer(target: PackTarget): LayoutPacker;
  /** Reads one row of packed weights back into `target`. */
  readRow(packed: PackedWeights, row: number, target: WeightRow): void;
  /** Reads the bias of one row; 0 without a bias. */
  readBias(packed: PackedWeights, row: number): number;
}
