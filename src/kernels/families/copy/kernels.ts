/** Kernels that copy values. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { gatherColumnsFields, selectFields } from "./fields.ts";
import { gatherColumnsReference, selectReference } from "./reference.ts";
import { gatherColumnsWasm } from "./wasm-gather-columns.ts";
import { selectWasm } from "./wasm-select.ts";

export const gatherColumns = family("gather_columns", gatherColumnsFields, {
  wasm: [gatherColumnsWasm],
  reference: gatherColumnsReference,
});
export const select = family("select", selectFields, { wasm: [selectWasm], reference: selectReference });
