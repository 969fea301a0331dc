/** Kernels that copy values. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
import { gatherColumnsReference, selectReference } from "./reference.ts";
import { gatherColumnsWasm } from "./wasm-gather-columns.ts";
import { selectWasm } from "./wasm-select.ts";

export const gatherColumns = listed("gather_columns", native.gatherColumns, [
  gatherColumnsWasm,
  gatherColumnsReference,
]);
export const select = listed("select", native.select, [selectWasm, selectReference]);
