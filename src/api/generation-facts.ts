/** What config.json and generation_config.json say about generating: begin and end tokens, sampling defaults. */
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { SamplerOptions } from "../text/sampler.ts";

type JsonObject = Readonly<Record<string, unknown>>;

export interface GenerationFacts {
  readonly bosId: number | null;
  readonly eosIds: readonly number[];
}

/** Ids from generation_config.json, else from config.json. */
export function generationFacts({ config, generationConfig }: Checkpoint): GenerationFacts {
  const field = (name: string): unknown => generationConfig?.value[name] ?? config[name];
  const bos = field("bos_token_id");
  return { bosId: isId(bos) ? bos : null, eosIds: [field("eos_token_id")].flat().filter(isId) };
}

function isId(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

/** Sampling that the model's authors recommend; greedy where they say nothing. */
export function samplingDefaults(generationConfig: JsonObject): SamplerOptions {
  if (generationConfig.do_sample !== true) return { temperature: 0 };
  const number = (name: string) => {
    const value = generationConfig[name];
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
  };
  return {
    temperature: number("temperature") ?? 1,
    topK: number("top_k"),
    topP: number("top_p"),
    minP: number("min_p"),
    repetitionPenalty: number("repetition_penalty"),
  };
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
