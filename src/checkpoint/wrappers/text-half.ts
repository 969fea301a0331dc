/**
 * Checkpoints of multimodal models: `…ForConditionalGeneration`, whose `text_config` describes the decoder, the only part
 * that is used.
 */
import { UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { describe, isObject, type JsonObject } from "../../formats/json.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import { logInfo } from "../../log.ts";
import { architectures } from "../../model/architectures.ts";
import { ASSISTANT_CONFIG, ASSISTANT_PREFIX } from "../../model/assistant.ts";
import type { Architecture } from "../../model/decoder.ts";
import { architectureName } from "../../model/encoders.ts";
import { MULTI_TOKEN_LAYERS } from "../../model/multi-token.ts";

/** Prefixes of the decoder's tensors, by the classes and versions of transformers that wrote them. */
const decoderPrefix = /^(?:model\.)?(?:language_model|text_model)\.(?:model\.)?/;
const headPrefix = /^(?:model\.)?(?:(?:language_model|text_model)\.)?(?=lm_head\.)/;

const draftPrefix = /^(?:model\.)?(?:language_model\.)?(?=mtp\.)/;

/** Which tensor names of a file belong to its decoder. */
interface NamesOfHalf {
  /** Whether the decoder's names have a prefix of their own. */
  readonly isPrefixed: boolean;
  /** Whether the decoder has a layer of multi-token prediction. */
  readonly drafts: boolean;
}

/** The decoder's name of a tensor; null for one of another part. */
function decoderName(name: string, { isPrefixed, drafts }: NamesOfHalf): string | null {
  if (name.startsWith(ASSISTANT_PREFIX)) return name;
  if (headPrefix.test(name)) return name.replace(headPrefix, "");
  if (drafts && draftPrefix.test(name)) return name.replace(draftPrefix, "");
  if (!isPrefixed) return name.startsWith("model.") ? name : null;
  return decoderPrefix.test(name) ? name.replace(decoderPrefix, "model.") : null;
}

/** The decoder of a text_config: by its model_type, which transformers goes by, else by its class. */
function architectureOf({ model_type: type, architectures: names }: JsonObject): Architecture | undefined {
  if (type === undefined) return architectures.find(({ name }) => Array.isArray(names) && names[0] === name);
  return architectures.find(
    ({ modelType, textTypes = {} }) => modelType === type || Object.hasOwn(textTypes, String(type)),
  );
}

/** Fields of the whole config that apply to the decoder where its own config lacks them. */
const shared = [
  "bos_token_id",
  "eos_token_id",
  "pad_token_id",
  "torch_dtype",
  "dtype",
  "tie_word_embeddings",
  ASSISTANT_CONFIG,
] as const;

/** Name of a multimodal model for messages: its class, or its type without one; null for other models. */
function wholeName(config: JsonObject): string | null {
  const name = architectureName(config);
  if (name === "" && isObject(config.text_config)) return String(config.model_type);
  return name.endsWith("ForConditionalGeneration") ? name : null;
}

/** The decoder's config of a multimodal model; null for a config that is a decoder's already. */
function textConfig(checkpoint: Checkpoint): JsonObject | null {
  const { config, configFile } = checkpoint;
  const name = wholeName(config);
  if (name === null) return null;
  const text = isObject(config.text_config) ? config.text_config : config;
  const architecture = architectureOf(text);
  if (!architecture)
    throw new UnsupportedError(
      `${configFile}: architecture ${name} is not supported: its text half is of model_type ${describe(text.model_type)}, not one of ${architectures.map(({ modelType }) => modelType).join(", ")}`,
    );
  const given = Object.fromEntries(shared.filter((field) => field in config).map((field) => [field, config[field]]));
  const { tie_word_embeddings: tied = text.tie_word_embeddings } = config;
  const whole = Object.entries(architecture.wholeFields ?? {}).map(([field, value]) => [field, config[field] ?? value]);
  return {
    ...architecture.textTypes?.[String(text.model_type)],
    ...given,
    ...text,
    ...(tied === undefined ? {} : { tie_word_embeddings: tied }),
    ...(config.quantization_config === undefined ? {} : { quantization_config: config.quantization_config }),
    ...Object.fromEntries(whole),
    architectures: [architecture.name],
    model_type: architecture.modelType,
  };
}

/** The part of the model that a tensor belongs to: the first word of its name after "model.". */
const partOf = (name: string) => name.replace(/^model\./, "").split(".")[0]!;

/**
 * The decoder's checkpoint within a multimodal one, with a note about what is left out; other checkpoints are unchanged.
 * UnsupportedError for an unknown decoder.
 */
export function withTextHalf(checkpoint: Checkpoint): Checkpoint {
  const config = textConfig(checkpoint);
  if (!config) return checkpoint;
  const { tensors, configFile, notes } = checkpoint;
  const half: NamesOfHalf = {
    isPrefixed: tensors.names.some((name) => decoderPrefix.test(name)),
    drafts: Boolean(config[MULTI_TOKEN_LAYERS]),
  };
  const left = tensors.names.filter((name) => decoderName(name, half) === null);
  const parts = [...new Set(left.map(partOf))].join(", ");
  const note =
    `${configFile}: ${wholeName(checkpoint.config)} is used as its text half, ${architectureName(config)}` +
    `${left.length > 0 ? `; ${left.length} tensors are left out: ${parts}` : ""}`;
  logInfo(() => note);
  return {
    ...checkpoint,
    config,
    configFile: isObject(checkpoint.config.text_config) ? `${configFile}, text_config` : configFile,
    tensors: renamedTensors(tensors, (name) => decoderName(name, half)),
    notes: [...notes, note],
  };
}
