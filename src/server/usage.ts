/** How many tokens a request took, as the APIs write it. */
import type { TokenCounts } from "./serving.ts";

export function openaiUsage({ promptTokens, cachedTokens, generatedTokens }: TokenCounts): object {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: generatedTokens,
    total_tokens: promptTokens + generatedTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

export function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
