/**
 * Native versions of the rounding in `quantize/affine.ts` and `quantize/mse.ts`: bit-identical, on all cores, off the
 * JavaScript thread.
 */
import type { DType } from "../../../dtype.ts";
import type { Cpu, NativeCall } from "../../contract.ts";
import { hostCpu } from "../../cpu.ts";
import { defaultThreads, planNativeCalls } from "../../plan.ts";
import { floatTypes } from "../../records.ts";
import { kernelRefusal, selectKernel } from "../../select.ts";
import type { QuantizeAffineArgs } from "./fields.ts";
import { quantizeAffine } from "./kernels.ts";

/** Arguments of native rounding: the weights and its result arrays. */
export type RoundingArgs = Omit<QuantizeAffineArgs, "failed">;

const query = { layout: null, bits: null, m: 1 };

/** Whether there is a native kernel to round values of type `dtype` on a CPU. */
export function canRoundNatively(dtype: DType, cpu: Cpu = hostCpu()): dtype is RoundingArgs["dtype"] {
  return (
    (floatTypes as readonly DType[]).includes(dtype) &&
    quantizeAffine.some((kernel) => kernelRefusal(kernel, query, cpu) === null)
  );
}

/** Writes integers, scales and zero points; false when a weight is not finite. */
export async function roundNatively(args: RoundingArgs, cpu: Cpu = hostCpu()): Promise<boolean> {
  const kernel = selectKernel(quantizeAffine, query, cpu);
  const threads = defaultThreads();
  const call: QuantizeAffineArgs = { ...args, failed: new Int32Array(1) };
  const scratch = new Uint8Array(kernel.scratchBytes!(call, threads));
  const plan = planNativeCalls([kernel.encode!(call, scratch) as NativeCall], threads);
  await plan.run(new Int32Array(1));
  return call.failed[0] === 0;
}
