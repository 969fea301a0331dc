/** Kernels that round and pack weights. Best first: the reference fits everything and is last. */
import { nativeFamily, plainFamily } from "../../family.ts";
import { gptqBlockFields, quantizeAffineFields, quantizePackFields } from "./fields.ts";
import { int4PackReference } from "./int4-reference.ts";

export const int4Pack = plainFamily(int4PackReference);
export const quantizeAffine = nativeFamily("quantize_affine", quantizeAffineFields);
export const gptqRound = nativeFamily("gptq_round", gptqBlockFields, { args: "gptq_block" });
export const gptqSweep = nativeFamily("gptq_sweep", gptqBlockFields, { args: "gptq_block" });
export const quantizePack = nativeFamily("quantize_pack", quantizePackFields);
