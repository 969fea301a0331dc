/** Kernels of embeddings. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
import { embeddingFloatReference, embeddingPackedReference, embeddingSharedReference } from "./reference.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./wasm/embedding.ts";
import { embeddingPackedWasm } from "./wasm/embedding-packed.ts";

export const embeddingFloat = listed("embedding_float", native.embeddingFloat, [
  embeddingFloatWasm,
  embeddingFloatReference,
]);
export const embeddingPacked = listed("embedding_packed", native.embeddingPacked, [
  embeddingPackedWasm,
  embeddingPackedReference,
]);
export const embeddingShared = listed("shared_embedding", native.embeddingShared, [
  embeddingSharedWasm,
  embeddingSharedReference,
]);
