/** Adapts kernels of float32 activations to bfloat16 activations and results, which are converted in scratch memory. */
import { viewOf } from "../../../dtype.ts";
import { decodeBf16, f32ToBf16 } from "../../../half.ts";
import type { Kernel } from "../../contract.ts";
import type { PackedLinearArgs } from "./fields.ts";

/** Arguments of a packed linear layer with bfloat16 bit patterns for x [m, k] and y [m, n]. */
export interface Bf16LinearArgs extends Omit<PackedLinearArgs, "x" | "y"> {
  readonly x: Uint16Array;
  readonly y: Uint16Array;
}

const LINE = 64;
const bytesFor = (values: Uint16Array) => Math.ceil((4 * values.length) / LINE) * LINE;

/** A kernel that rounds the float32 results of `kernel` to bfloat16, ties to even. */
export function withBf16Rows(kernel: Kernel<PackedLinearArgs>): Kernel<Bf16LinearArgs> {
  const { encode: _, ...row } = kernel;
  const floats = (values: Uint16Array, scratch: Uint8Array, at: number) =>
    viewOf("f32", scratch.buffer, scratch.byteOffset + at, values.length);
  const inFloats = ({ m, weights, x, y }: Bf16LinearArgs, scratch: Uint8Array): PackedLinearArgs => ({
    ...{ m, weights, x: floats(x, scratch, 0), y: floats(y, scratch, bytesFor(x)) },
  });
  const own = ({ x, y }: Bf16LinearArgs) => bytesFor(x) + bytesFor(y);
  return {
    ...row,
    name: row.name.replace("linear_a8_", "linear_a8_bf16_"),
    scratchBytes(args, threads) {
      const inner = kernel.scratchBytes?.(inFloats(args, new Uint8Array(own(args))), threads) ?? 0;
      return own(args) + inner;
    },
    bind(args, scratch, threads) {
      const inner = inFloats(args, scratch);
      const run = kernel.bind(inner, scratch.subarray(own(args)), threads);
      return () => {
        decodeBf16(args.x, inner.x);
        run();
        for (let i = 0; i < args.y.length; i++) args.y[i] = f32ToBf16(inner.y[i]!);
      };
    },
  };
}
