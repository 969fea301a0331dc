/** Kernels that copy values. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { gatherColumnsFields, joinColumnsFields, selectFields } from "./fields.ts";
import { gatherColumnsReference, joinColumnsReference, selectReference } from "./reference.ts";
import { gatherColumnsWasm } from "./wasm-gather-columns.ts";
import { joinColumnsWasm } from "./wasm-join-columns.ts";
import { selectWasm } from "./wasm-select.ts";

export const gatherColumns = family("gather_columns", gatherColumnsFields, {
  wasm: [gatherColumnsWasm],
  reference: gatherColumnsReference,
});
export const joinColumns = family("join_columns", joinColumnsFields, {
  wasm: [joinColumnsWasm],
  reference: joinColumnsReference,
});
export const select = family("select", selectFields, { wasm: [selectWasm], reference: selectReference });
