/** What config.json and generation_config.json say about generating: begin and end tokens, sampling defaults. */
import { InvalidFileError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { createSampler, type SamplerOptions } from "../text/sampler.ts";

type JsonObject = Readonly<Record<string, unknown>>;

export interface GenerationFacts {
  readonly bosId: number | null;
  readonly eosIds: readonly number[];
}

/**
 * Ids from generation_config.json, else from config.json; negative ones stand for none. InvalidFileError for ids that are no
 * whole numbers, and for sampling that is out of range.
 */
export function generationFacts({ folder, configFile, config, generationConfig }: Checkpoint): GenerationFacts {
  const settings = generationConfig?.value ?? {};
  const settingsFile = `${folder}/generation_config.json`;
  samplingDefaults(settings, settingsFile);
  const ids = (name: string) => {
    const own = settings[name] ?? null;
    const [value, file] = own === null ? [config[name] ?? [], configFile] : [own, settingsFile];
    return [value]
      .flat()
      .map((id) => checkId(id, name, file))
      .filter((id) => id >= 0);
  };
  return { bosId: ids("bos_token_id")[0] ?? null, eosIds: ids("eos_token_id") };
}

function checkId(id: unknown, name: string, file: string): number {
  if (typeof id === "number" && Number.isInteger(id)) return id;
  throw new InvalidFileError(file, `${name}: expected token ids but found ${JSON.stringify(id)}`);
}

/**
 * Sampling that the model's authors recommend; greedy where they say nothing, though their repetition penalty counts then,
 * too, as in transformers. InvalidFileError naming `file` for numbers out of range.
 */
export function samplingDefaults(generationConfig: JsonObject, file: string): SamplerOptions {
  const number = (name: string) => (generationConfig[name] ?? undefined) as number | undefined;
  const repetitionPenalty = number("repetition_penalty");
  const options =
    generationConfig.do_sample === true
      ? {
          temperature: number("temperature") ?? 1,
          topK: number("top_k"),
          topP: number("top_p"),
          minP: number("min_p"),
          repetitionPenalty,
        }
      : { temperature: 0, repetitionPenalty };
  try {
    createSampler(options);
  } catch (cause) {
    throw new InvalidFileError(file, (cause as Error).message, { cause });
  }
  return options;
}

/** `stop_strings` of a generation_config.json: they end an answer in a conversation. */
export function stopStrings(generationConfig: JsonObject): string[] {
  return [generationConfig.stop_strings]
    .flat()
    .filter((item): item is string => typeof item === "string" && item !== "");
}

/** The fields of `options` over those of `defaults`; a field that is undefined counts as not given. */
export function withDefaults<T extends object>(defaults: T, options: T): T {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  return { ...defaults, ...given };
}
