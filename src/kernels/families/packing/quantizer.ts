/**
 * Native versions of the rounding in `quantize/affine.ts`, `quantize/mse.ts` and `quantize/gptq-blocks.ts`: bit-identical, on all
 * cores, off the JavaScript thread.
 */
import type { DType } from "../../../dtype.ts";
import type { Cpu, Kernel, NativeCall } from "../../contract.ts";
import { hostCpu } from "../../cpu.ts";
import { defaultThreads, planNativeCalls } from "../../plan.ts";
import { floatTypes } from "../../records.ts";
import { kernelRefusal, selectKernel } from "../../select.ts";
import type { GptqBlockArgs, QuantizeAffineArgs } from "./fields.ts";
import { gptqRound, gptqSweep, quantizeAffine } from "./kernels.ts";

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
export function roundNatively(args: RoundingArgs, cpu: Cpu = hostCpu()): Promise<boolean> {
  return run(quantizeAffine, args, cpu);
}

/** Rows of a block that GPTQ works on. */
type BlockArgs = Omit<GptqBlockArgs, "failed">;

/** Whether native kernels round and sweep GPTQ's blocks on a CPU. */
export function canRunBlocksNatively(cpu: Cpu = hostCpu()): boolean {
  return [gptqRound, gptqSweep].every((family) => family.some((kernel) => kernelRefusal(kernel, query, cpu) === null));
}

/** Rounds a block as `quantize/gptq-blocks.ts` does; false when a weight is not finite. */
export function roundBlockNatively(args: BlockArgs, cpu: Cpu = hostCpu()): Promise<boolean> {
  return run(gptqRound, args, cpu);
}

/** Chooses a block's scales and integers anew, as `quantize/gptq-blocks.ts` does. */
export async function sweepBlockNatively(args: BlockArgs, cpu: Cpu = hostCpu()): Promise<void> {
  await run(gptqSweep, args, cpu);
}

/** False when a weight is not finite. */
async function run<A extends { readonly failed: Int32Array }>(
  family: readonly Kernel<A>[],
  args: Omit<A, "failed">,
  cpu: Cpu,
): Promise<boolean> {
  const kernel = selectKernel(family, query, cpu);
  const threads = defaultThreads();
  const call = { ...args, failed: new Int32Array(1) } as unknown as A;
  const scratch = new Uint8Array(kernel.scratchBytes!(call, threads));
  const plan = planNativeCalls([kernel.encode!(call, scratch) as NativeCall], threads);
  await plan.run(new Int32Array(1));
  return call.failed[0] === 0;
}
