/** Sample calls of kernels of sampling, for tests and printed code. */
import { floats } from "../../cases.ts";
import { callOf, type SampleCall } from "../sample-call.ts";
import { BLOCK_TOKENS, type VocabularyMaximaArgs, type VocabularyWeightsArgs } from "./fields.ts";
import { vocabularyMaximaReference, vocabularyWeightsReference } from "./reference.ts";
import { vocabularyMaximaWasm, vocabularyWeightsWasm } from "./wasm.ts";

const BLOCKS = 3;

/** Blocks with all, some and one of their tokens allowed. Each has tokens with weights: a block without keeps its old contents. */
export function samplingCalls(): SampleCall[] {
  const words = (BLOCKS * BLOCK_TOKENS) / 32;
  const maxima = (): VocabularyMaximaArgs => ({
    x: floats(BLOCKS * BLOCK_TOKENS),
    allowed: Uint32Array.from({ length: words }, (_, i) =>
      i < 4 ? 2 ** 32 - 1 : i < 8 ? 0x5a5a5a5a : Number(i === 8),
    ),
    maxima: new Float32Array(BLOCKS),
  });
  const weights = (): VocabularyWeightsArgs => ({
    x: floats(BLOCKS * BLOCK_TOKENS),
    maxima: Float32Array.of(1, 0.5, 1),
    settings: Float32Array.of(1, 1.5, -0.5),
    weights: new Float32Array(BLOCKS * BLOCK_TOKENS),
    sums: new Float32Array(BLOCKS),
  });
  return [
    callOf(vocabularyMaximaWasm, vocabularyMaximaReference, maxima, (args) => args.maxima),
    callOf(vocabularyWeightsWasm, vocabularyWeightsReference, weights, (args) => args.weights),
  ];
}
