/** Converts sampling fields of requests to options of generation. */
import type { z } from "@hono/zod-openapi";
import type { GenerateOptions } from "../text/generate.ts";
import { given, type samplingFields } from "./schemas/fields.ts";

type SamplingFields = z.output<z.ZodObject<typeof samplingFields>>;

/** Seeds are taken modulo this: those of clients may be negative, those of the sampler may not. */
const SEEDS = Number.MAX_SAFE_INTEGER;

/** Options that the request gives; the model's own defaults apply for others. */
export function samplingOptions(request: SamplingFields): GenerateOptions {
  const { top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, seed, stop } = request;
  return given({
    temperature: request.temperature,
    topP: top_p,
    topK: top_k === -1 ? 0 : top_k,
    minP: min_p,
    presencePenalty: presence_penalty,
    frequencyPenalty: frequency_penalty,
    repetitionPenalty: repetition_penalty,
    logitBias: request.logit_bias,
    seed: typeof seed === "number" && seed < 0 ? SEEDS + seed : seed,
    stop: typeof stop === "string" ? [stop] : stop,
    stopTokens: request.stop_token_ids,
    ignoreEos: request.ignore_eos,
  }) as GenerateOptions;
}
