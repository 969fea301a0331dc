/**
 * What a model's operator calls are made on: executed at once (eager) or recorded (capture).
 * `T` is a tensor in the first case and a symbolic value in the second.
 */
import type { DType, TypedArray } from "../dtype.ts";
import type { Cpu } from "../kernels/contract.ts";
import type { Argument, TensorSpec } from "./operator.ts";

/** A constant whose bytes are made when they are needed: packed weights, tables. */
export interface LazyConstant {
  /** Names the content: constants of one key are one buffer. */
  readonly key: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  read(): Promise<TypedArray>;
}

export interface Builder<T> {
  /** The CPU that weights are packed for. */
  readonly cpu: Cpu;
  /** Calls a registered operator by its full name; missing trailing arguments take the schema's defaults. */
  call(operator: string, ...args: Argument<T>[]): T;
  constant(constant: LazyConstant): T;
  /** A zeroed tensor that outlives the call, such as a KV cache. */
  state(name: string, spec: TensorSpec): T;
  spec(value: T): TensorSpec;
}
