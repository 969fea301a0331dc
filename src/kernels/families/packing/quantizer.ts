/** The rounding of `quantize/affine.ts` and `quantize/mse.ts` in native code: the same in every bit, on all cores, off the JavaScript thread. */
import type { DType } from "../../../dtype.ts";
import type { Cpu, NativeCall } from "../../contract.ts";
import { hostCpu } from "../../cpu.ts";
import { defaultThreads, planNativeCalls } from "../../plan.ts";
import { floatTypes } from "../../records.ts";
import { kernelRefusal, selectKernel } from "../../select.ts";
import type { QuantizeAffineArgs } from "./fields.ts";
import { quantizeAffine } from "./kernels.ts";

/** What is rounded, and where the result goes. */
export type RoundingArgs = Omit<QuantizeAffineArgs, "failed">;

const query = { layout: null, bits: null, m: 1 };

/** Whether a native kernel rounds values stored as `dtype` on a CPU. */
export function canRoundNatively(dtype: DType, cpu: Cpu = hostCpu()): dtype is RoundingArgs["dtype"] {
  return (
    (floatTypes as readonly DType[]).includes(dtype) &&
    quantizeAffine.some((kernel) => kernelRefusal(kernel, query, cpu) === null)
  );
}

/** Fills integers, scales and zero points; false when a weight is not finite. */
export async function roundNatively(args: RoundingArgs, cpu: Cpu = hostCpu()): Promise<boolean> {
  const kernel = selectKernel(quantizeAffine, query, cpu);
  const threads = defaultThreads();
  const call: QuantizeAffineArgs = { ...args, failed: new Int32Array(1) };
  const scratch = new Uint8Array(kernel.scratchBytes!(call, threads));
  const plan = planNativeCalls([kernel.encode!(call, scratch) as NativeCall], threads);
  await plan.run(new Int32Array(1));
  return call.failed[0] === 0;
}
