/** The rounding of `quantize/affine.ts` and `quantize/mse.ts` in native code: the same in every bit, on all cores, off the JavaScript thread. */
import type { DType, TypedArray } from "../../../dtype.ts";
import type { Cpu, Kernel, NativeCall } from "../../contract.ts";
import { hostCpu } from "../../cpu.ts";
import { argumentNames, type NativeArguments, orderArguments } from "../../native/families.ts";
import { nativeKernels } from "../../native/rows.ts";
import { defaultThreads, planNativeCalls } from "../../plan.ts";
import { kernelRefusal, selectKernel } from "../../select.ts";

const types = ["f32", "f16", "bf16"] as const satisfies readonly DType[];
const mappings = ["symmetric", "symmetric_no_clipping_err", "asymmetric", "codebook", "kmeans"] as const;
const algorithms = ["affine", "hqq_scale_only", "mse"] as const;
const scaleTypes = ["f32", "f16", "i8"] as const;

/** A matrix [n, k] of floats, how its groups are rounded, and where the result goes. */
export interface RoundingArgs {
  readonly n: number;
  readonly k: number;
  /** 1..k; the last group of a row may be shorter. */
  readonly groupSize: number;
  readonly bits: number;
  readonly dtype: (typeof types)[number];
  readonly mappingType: (typeof mappings)[number];
  /** How scales are chosen. */
  readonly algorithm: (typeof algorithms)[number];
  /** What scales are rounded to; integers only by "mse". */
  readonly scaleType: (typeof scaleTypes)[number];
  readonly weights: TypedArray;
  readonly qvals: Int8Array;
  readonly scales: Float32Array;
  /** Factors of scales that are integers; else empty. */
  readonly superScales: Float32Array;
  /** Empty unless the mapping is asymmetric. */
  readonly zeros: Int8Array;
  /** What errors of each of k columns count; empty where all count alike. Only "mse" looks at it. */
  readonly importance: Float32Array;
  /** Grids that "mse" tries, as `GroupFit` says; else empty. */
  readonly trials: Float32Array;
  /** Levels of a codebook; empty for other mappings. */
  readonly levels: Int8Array;
}

type Rounding = RoundingArgs & {
  /** [1], set when a weight is not finite. */
  readonly failed: Int32Array;
};

function rounding({ dtype, mappingType, algorithm, scaleType, ...args }: Rounding): NativeArguments {
  return orderArguments(argumentNames.quantizeAffine, {
    ...args,
    weightType: types.indexOf(dtype),
    mapping: mappings.indexOf(mappingType === "kmeans" ? "codebook" : mappingType),
    algorithm: algorithms.indexOf(algorithm),
    scaleType: scaleTypes.indexOf(scaleType),
    hasImportance: Number(args.importance.length > 0),
  });
}

/** The native kernels, best first; none where there is no native code. */
export const roundingKernels: readonly Kernel<Rounding>[] = nativeKernels("quantize_affine", rounding);

const query = { layout: null, bits: null, m: 1 };

/** Whether a native kernel rounds values stored as `dtype` on a CPU. */
export function canRoundNatively(dtype: DType, cpu: Cpu = hostCpu()): dtype is RoundingArgs["dtype"] {
  return (
    (types as readonly DType[]).includes(dtype) &&
    roundingKernels.some((kernel) => kernelRefusal(kernel, query, cpu) === null)
  );
}

/** Fills integers, scales and zero points; false when a weight is not finite. */
export async function roundNatively(args: RoundingArgs, cpu: Cpu = hostCpu()): Promise<boolean> {
  const kernel = selectKernel(roundingKernels, query, cpu);
  const threads = defaultThreads();
  const call: Rounding = { ...args, failed: new Int32Array(1) };
  const scratch = new Uint8Array(kernel.scratchBytes!(call, threads));
  const plan = planNativeCalls([kernel.encode!(call, scratch) as NativeCall], threads);
  await plan.run(new Int32Array(1));
  return call.failed[0] === 0;
}
