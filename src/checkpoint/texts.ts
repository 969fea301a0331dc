/** The texts of a checkpoint that travel with the programs made from it. */
import type { Checkpoint } from "../formats/contract.ts";
import type { ModelTexts } from "../text/model-texts.ts";

/** Tokenizer, chat template and generation settings of a checkpoint. */
export function textsOf(checkpoint: Checkpoint): ModelTexts {
  return {
    tokenizerJson: checkpoint.tokenizerJson?.text ?? null,
    tokenizerConfig: checkpoint.tokenizerConfig?.text ?? null,
    generationConfig: checkpoint.generationConfig?.text ?? null,
    chatTemplate: checkpoint.chatTemplate,
  };
}
