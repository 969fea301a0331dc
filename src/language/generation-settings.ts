/** Reads generation_config.json: sampling defaults, stop strings, and settings that are ignored. */
import { checkFields, checkOptions } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import { createSampler, type SamplerOptions } from "../text/sampler.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/** Largest token id: all formats have 32-bit integers. */
const ID_MAX = 2 ** 31 - 1;

/**
 * Token ids of a file. Negative ones and those from 2^31 on stand for "none" and are left out. InvalidFileError, naming the
 * field, for anything but whole numbers.
 */
export function tokenIds(value: unknown, name: string, file: string): number[] {
  return [value ?? []]
    .flat()
    .map((id) => checkTokenId(id, name, file))
    .filter((id) => id >= 0 && id <= ID_MAX);
}

function checkTokenId(id: unknown, name: string, file: string): number {
  if (typeof id === "number" && Number.isInteger(id)) return id;
  throw new InvalidFileError(file, `${name}: expected token ids but found ${JSON.stringify(id)?.slice(0, 80)}`);
}

/** Defaults of generation, for calls that give no options of their own. */
export interface GenerationDefaults extends SamplerOptions {
  /** Most tokens of an answer; absent for as many as the context has room for. */
  readonly maxTokens?: number;
}

/** Fields of generation_config.json by the sampler's options. */
const fieldOf: Readonly<Record<string, string>> = {
  topK: "top_k",
  topP: "top_p",
  minP: "min_p",
  repetitionPenalty: "repetition_penalty",
  suppressTokens: "suppress_tokens",
};

/** top_k of transformers for a model that samples and says nothing else. */
const TOP_K = 50;

/** `max_new_tokens` as an option, where it is given. */
function limitOf({ max_new_tokens: most = null }: JsonObject, file: string): { maxTokens?: number } {
  if (most === null) return {};
  if (typeof most === "number" && Number.isSafeInteger(most) && most > 0) return { maxTokens: most };
  const found = JSON.stringify(most).slice(0, 80);
  throw new InvalidFileError(file, `max_new_tokens: expected a whole number from 1 but found ${found}`);
}

/**
 * Defaults that the model's authors recommend: `max_new_tokens` and sampling. Without sampling settings, greedy; repetition
 * penalty (over the whole context) and banned tokens apply then, too, as in transformers, except for ids beyond the
 * vocabulary. InvalidFileError naming `file` for numbers out of range.
 */
export function samplingDefaults(
  generationConfig: JsonObject,
  file: string,
  vocabularySize: number = Number.POSITIVE_INFINITY,
): GenerationDefaults {
  checkFields("generationConfig", generationConfig, [], "settings by name");
  const number = (name: string) => (generationConfig[name] ?? undefined) as number | undefined;
  const repetitionPenalty = number("repetition_penalty");
  const suppressTokens = bannedTokens(generationConfig, file).filter((id) => id < vocabularySize);
  const always = {
    ...(repetitionPenalty !== undefined && { repetitionPenalty, penaltyWindow: Number.POSITIVE_INFINITY }),
    ...(suppressTokens.length > 0 && { suppressTokens }),
  };
  const options =
    generationConfig.do_sample === true
      ? {
          temperature: number("temperature") ?? 1,
          topK: number("top_k") ?? TOP_K,
          topP: number("top_p"),
          minP: number("min_p"),
          ...always,
        }
      : { temperature: 0, ...always };
  try {
    createSampler(options);
  } catch (cause) {
    const problem = (cause as Error).message.replace(/^\w+(?=:)/, (name) => fieldOf[name] ?? name);
    throw new InvalidFileError(file, problem, { cause });
  }
  return { ...options, ...limitOf(generationConfig, file) };
}

/** Ids of `suppress_tokens`, and of `bad_words_ids` that are one token; transformers leaves out end tokens. */
function bannedTokens(generationConfig: JsonObject, file: string): number[] {
  const { suppress_tokens, bad_words_ids, eos_token_id } = generationConfig;
  const suppressed = tokenIds(suppress_tokens, "suppress_tokens", file);
  const ends = [eos_token_id].flat();
  const words = [bad_words_ids ?? []]
    .flat()
    .filter(isOneToken)
    .flatMap((word) => tokenIds(word, "bad_words_ids", file))
    .filter((id) => !ends.includes(id));
  return [...new Set([...suppressed, ...words])];
}

function isOneToken(word: unknown): word is [unknown] {
  return Array.isArray(word) && word.length === 1;
}

/** Settings that transformers obeys and that are ignored here, with the values that change nothing. */
const unserved: Readonly<Record<string, readonly unknown[]>> = {
  num_beams: [1],
  num_beam_groups: [1],
  min_length: [0],
  min_new_tokens: [0],
  no_repeat_ngram_size: [0],
  encoder_no_repeat_ngram_size: [0],
  encoder_repetition_penalty: [1],
  sequence_bias: [],
  begin_suppress_tokens: [],
  forced_bos_token_id: [],
  forced_eos_token_id: [],
  exponential_decay_length_penalty: [],
  guidance_scale: [1],
  penalty_alpha: [0],
  watermarking_config: [],
  max_time: [],
  force_words_ids: [],
  constraints: [],
  forced_decoder_ids: [],
  dola_layers: [],
  token_healing: [],
};
/** Default `max_length` of transformers (prompt and answer), which applies without `max_new_tokens`. */
const MAX_LENGTH = 20;
/** Sampling settings that are ignored here, with the values that change nothing. */
const unservedSampling: Readonly<Record<string, readonly unknown[]>> = {
  typical_p: [1],
  epsilon_cutoff: [0],
  eta_cutoff: [0],
  top_h: [],
};

/** Names of the settings in a generation_config.json that change what transformers generates, and that are ignored here. */
export function ignoredSettings(generationConfig: JsonObject): string[] {
  const known: Readonly<Record<string, readonly unknown[]>> = {
    ...unserved,
    ...(generationConfig.do_sample === true && unservedSampling),
    ...((generationConfig.max_new_tokens ?? null) === null && { max_length: [MAX_LENGTH] }),
  };
  const phrases = [generationConfig.bad_words_ids ?? []].flat().some((word) => !isOneToken(word));
  const others = Object.entries(known).flatMap(([name, neutral]) => {
    const value = generationConfig[name] ?? null;
    const isNeutral = value === null || value === false || neutral.includes(value);
    return isNeutral || (Array.isArray(value) && value.length === 0) ? [] : [name];
  });
  return phrases ? [...others, "bad_words_ids"] : others;
}

/** `stop_strings` of a generation_config.json, which end answers in chat. */
export function stopStrings(generationConfig: JsonObject): string[] {
  return [generationConfig.stop_strings]
    .flat()
    .filter((item): item is string => typeof item === "string" && item !== "");
}

/** The fields of `options` over those of `defaults`; a field that is undefined counts as not given. */
export function withDefaults<T extends object>(defaults: T, options: T): T {
  checkOptions(options);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  return { ...defaults, ...given };
}
