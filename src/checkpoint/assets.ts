/** Assets of a checkpoint (tokenizer, chat template, settings), which become part of programs made from it. */
import type { Checkpoint } from "../formats/contract.ts";
import { isObject, type JsonObject } from "../formats/json.ts";
import type { EncoderNetwork } from "../model/encoder.ts";
import type { ModelAssets } from "../text/model-assets.ts";
import type { TextSettings } from "../text/text-settings.ts";

/** Tokenizer, chat template, generation settings, and sentence-transformers' settings of a checkpoint. */
export function assetsOf(checkpoint: Checkpoint): ModelAssets {
  return {
    tokenizerJson: checkpoint.tokenizerJson?.text ?? null,
    tokenizerConfig: checkpoint.tokenizerConfig?.text ?? null,
    generationConfig: checkpoint.generationConfig?.text ?? null,
    chatTemplate: checkpoint.chatTemplate,
    textSettings: settingsOf(checkpoint),
  };
}

/** sentence-transformers' settings that programs keep, as JSON; null where there are none. */
function settingsOf({ modules, config }: Checkpoint): string | null {
  const isScoreRaw = (modules?.activation ?? scoreActivation(config))?.endsWith("Identity") ?? false;
  if (!modules && !isScoreRaw) return null;
  const { prompts = {}, defaultPrompt = null, isLowerCase = false } = modules ?? {};
  const last = modules?.modules.at(-1)?.kind;
  const settings: TextSettings = {
    ...{ prompts, defaultPrompt, isLowerCase, isScoreRaw },
    isNormalized: last === "Normalize",
    pairVariables: last === "LogitScore" ? modules!.templateVariables : null,
  };
  return JSON.stringify(settings);
}

/** Most tokens of a text: as sentence-transformers' files say, else the tokenizer's limit, at most the network's. */
export function longestSequence({ modules, tokenizerConfig }: Checkpoint, { contextLength }: EncoderNetwork): number {
  const { model_max_length: most } = tokenizerConfig?.value ?? {};
  // transformers writes 1e30 for a tokenizer without a limit.
  const ofTokenizer = typeof most === "number" && most >= 1 ? Math.trunc(most) : contextLength;
  return Math.min(modules?.maxTokens ?? ofTokenizer, contextLength);
}

/** Name of the activation after a cross-encoder's scores, where its config names one. */
export function scoreActivation(config: JsonObject): string | null {
  const { sentence_transformers: settings, sbert_ce_default_activation_function: older } = config;
  const found = (isObject(settings) ? settings.activation_fn : undefined) ?? older;
  return typeof found === "string" ? found : null;
}
