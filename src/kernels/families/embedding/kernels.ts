/** Kernels of embeddings. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { embeddingFloatFields, embeddingPackedFields, sharedEmbeddingFields } from "./fields.ts";
import { embeddingFloatReference, embeddingPackedReference, embeddingSharedReference } from "./reference.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./wasm/embedding.ts";
import { embeddingPackedWasm } from "./wasm/embedding-packed.ts";

export const embeddingFloat = family("embedding_float", embeddingFloatFields, {
  wasm: [embeddingFloatWasm],
  reference: embeddingFloatReference,
});
export const embeddingPacked = family("embedding_packed", embeddingPackedFields, {
  wasm: [embeddingPackedWasm],
  reference: embeddingPackedReference,
});
export const embeddingShared = family("shared_embedding", sharedEmbeddingFields, {
  wasm: [embeddingSharedWasm],
  reference: embeddingSharedReference,
});
