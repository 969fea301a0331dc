/**
 * Checkpoints of models that see images or hear as well: `…ForConditionalGeneration`, whose decoder is described by
 * `text_config`. What becomes of them here is the decoder alone.
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

/** What names of the decoder's tensors begin with, by the classes and versions of transformers that wrote them. */
const decoderPrefix = /^(?:model\.)?(?:language_model|text_model)\.(?:model\.)?/;
const headPrefix = /^(?:model\.)?(?:(?:language_model|text_model)\.)?(?=lm_head\.)/;

const draftPrefix = /^(?:model\.)?(?:language_model\.)?(?=mtp\.)/;

/** Which names of a file are its decoder's. */
interface NamesOfHalf {
  /** Whether the decoder's names begin with its part's. */
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

/** The decoder that a text_config names, by its type, which transformers believes, else by its class. */
function architectureOf({ model_type: type, architectures: names }: JsonObject): Architecture | undefined {
  if (type === undefined) return architectures.find(({ name }) => Array.isArray(names) && names[0] === name);
  return architectures.find(
    ({ modelType, textTypes = {} }) => modelType === type || Object.hasOwn(textTypes, String(type)),
  );
}

/** Fields of the whole that count for its decoder, too, where that says nothing. */
const shared = [
  "bos_token_id",
  "eos_token_id",
  "pad_token_id",
  "torch_dtype",
  "dtype",
  "tie_word_embeddings",
  ASSISTANT_CONFIG,
] as const;

/** How messages call a model that sees or hears as well: its class, or its type where the config names no class; null for another. */
function wholeName(config: JsonObject): string | null {
  const name = architectureName(config);
  if (name === "" && isObject(config.text_config)) return String(config.model_type);
  return name.endsWith("ForConditionalGeneration") ? name : null;
}

/** The config of the decoder by itself; null for a config of a decoder. */
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

/** The part that a tensor is of: the first word of its name that says something. */
const partOf = (name: string) => name.replace(/^model\./, "").split(".")[0]!;

/**
 * The checkpoint of the decoder within one that sees or hears as well, with a note that says what is left out; others as
 * they are. UnsupportedError where the decoder is none of the table.
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
