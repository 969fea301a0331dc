/** Kernels of mixtures of experts. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
import {
  combineExpertsReference,
  expertLinearFloatReference,
  expertLinearPackedReference,
  expertRowsReference,
  routeReference,
} from "./reference.ts";
import { expertLinearFloatWasm, expertLinearPackedWasm } from "./wasm/expert-linear.ts";
import { combineExpertsWasm, expertRowsWasm, routeWasm } from "./wasm/router.ts";

export const route = listed("route", native.route, [routeWasm, routeReference]);
export const expertRows = listed("expert_rows", native.expertRows, [expertRowsWasm, expertRowsReference]);
export const combineExperts = listed("combine_experts", native.expertRows, [
  combineExpertsWasm,
  combineExpertsReference,
]);
/** Over rows in the order of their experts; the kernels of linear layers multiply. */
export const expertLinearPacked = listed("expert_linear_packed", native.expertPacked, [
  expertLinearPackedWasm,
  expertLinearPackedReference,
]);
export const expertLinearFloat = listed("expert_linear_float", native.expertFloat, [
  expertLinearFloatWasm,
  expertLinearFloatReference,
]);
