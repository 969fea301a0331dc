/** Token counts of a request, as the APIs write them. */
import type { ChatResult } from "../language/chat-options.ts";
import type { TokenCounts } from "./serving.ts";

export function openaiUsage(
  { promptTokens, cachedTokens, generatedTokens, draftedTokens, acceptedTokens }: TokenCounts,
  reasoningTokens: number = 0,
): object {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: generatedTokens,
    total_tokens: promptTokens + generatedTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      accepted_prediction_tokens: acceptedTokens,
      rejected_prediction_tokens: draftedTokens - acceptedTokens,
    },
  };
}

/** Sums the counts of several answers to one prompt, which is counted once. */
export function chatCounts(results: readonly ChatResult[]): TokenCounts & { readonly reasoningTokens: number } {
  const [first] = results;
  return {
    promptTokens: first!.usage.promptTokens,
    cachedTokens: first!.usage.cachedTokens,
    generatedTokens: sumOf(results.map(({ usage }) => usage.completionTokens)),
    draftedTokens: sumOf(results.map(({ generation }) => generation.draftedTokens)),
    acceptedTokens: sumOf(results.map(({ generation }) => generation.acceptedTokens)),
    reasoningTokens: sumOf(results.map(({ usage }) => usage.reasoningTokens)),
  };
}

export function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
