/** Kernels of sampling, over blocks of the logits of a vocabulary. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { vocabularyMaximaFields, vocabularyWeightsFields } from "./fields.ts";
import { vocabularyMaximaReference, vocabularyWeightsReference } from "./reference.ts";
import { vocabularyMaximaWasm, vocabularyWeightsWasm } from "./wasm.ts";

export const vocabularyMaxima = family("vocabulary_maxima", vocabularyMaximaFields, {
  wasm: [vocabularyMaximaWasm],
  reference: vocabularyMaximaReference,
});
export const vocabularyWeights = family("vocabulary_weights", vocabularyWeightsFields, {
  wasm: [vocabularyWeightsWasm],
  reference: vocabularyWeightsReference,
});
