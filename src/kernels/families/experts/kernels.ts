/** Kernels of mixtures of experts. Best first: the reference fits everything and is last. */
import { family, plainFamily } from "../../family.ts";
import {
  combineExpertsFields,
  expertRowsFields,
  floatExpertFields,
  packedExpertFields,
  routeFields,
} from "./fields.ts";
import {
  combineExpertsReference,
  expertLinearFloatReference,
  expertLinearPackedReference,
  expertRowsReference,
  routeReference,
  scatterExpertsReference,
} from "./reference.ts";
import { expertLinearFloatWasm, expertLinearPackedWasm } from "./wasm/expert-linear.ts";
import { combineExpertsWasm, expertRowsWasm, routeWasm } from "./wasm/router.ts";

export const route = family("route", routeFields, { wasm: [routeWasm], reference: routeReference });
export const expertRows = family("expert_rows", expertRowsFields, {
  wasm: [expertRowsWasm],
  reference: expertRowsReference,
});
export const combineExperts = family("combine_experts", combineExpertsFields, {
  wasm: [combineExpertsWasm],
  reference: combineExpertsReference,
});
/** The heads of some draft models use it, once for a token. */
export const scatterExperts = plainFamily(scatterExpertsReference);
/** Linear layers over rows ordered by expert; kernels of linear layers do the multiplication. */
export const expertLinearPacked = family("expert_linear_packed", packedExpertFields, {
  wasm: [expertLinearPackedWasm],
  reference: expertLinearPackedReference,
});
export const expertLinearFloat = family("expert_linear_float", floatExpertFields, {
  wasm: [expertLinearFloatWasm],
  reference: expertLinearFloatReference,
});
