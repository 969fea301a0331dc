/** The texts of a checkpoint that travel with the programs made from it. */
import type { Checkpoint } from "../formats/contract.ts";
import type { SentenceModules } from "../formats/sentence-modules.ts";
import type { ModelTexts } from "../text/model-texts.ts";
import type { TextSettings } from "../text/text-settings.ts";

/** Tokenizer, chat template, generation settings and settings of texts of a checkpoint. */
export function textsOf(checkpoint: Checkpoint): ModelTexts {
  return {
    tokenizerJson: checkpoint.tokenizerJson?.text ?? null,
    tokenizerConfig: checkpoint.tokenizerConfig?.text ?? null,
    generationConfig: checkpoint.generationConfig?.text ?? null,
    chatTemplate: checkpoint.chatTemplate,
    textSettings: checkpoint.modules ? JSON.stringify(settingsOf(checkpoint.modules)) : null,
  };
}

/** What programs keep of sentence-transformers' files. */
function settingsOf({ prompts, defaultPrompt, isLowerCase, modules }: SentenceModules): TextSettings {
  const isNormalized = modules.at(-1)?.kind === "Normalize";
  return { prompts, defaultPrompt, isLowerCase, isNormalized };
}
