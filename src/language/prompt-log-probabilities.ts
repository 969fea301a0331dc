/** How likely a model finds each token of a text, given those before it. */
import { checkIds, checkOptions, checkWhole } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { ofLogits } from "../text/finite-logits.ts";
import type { GenerateOptions } from "../text/generate.ts";
import { type LogProbabilities, logProbabilities, TOP_MAX } from "../text/log-probabilities.ts";
import { promptTooLong } from "../text/token-budget.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";
import { logitRows } from "./logit-rows.ts";

/**
 * Computes log probabilities of every token of `ids` but the first, each given all before it, and of the `top` most likely
 * tokens (0 to 100) there. The keys and values stay in the prefix cache, so that a generation after the same prompt begins
 * where they end. ContextLengthError when the ids do not fit the context.
 */
export async function promptLogProbabilities(
  model: LanguageModel,
  ids: readonly number[],
  options: Pick<GenerateOptions, "prefixScope" | "signal"> & { readonly top?: number } = {},
): Promise<LogProbabilities[]> {
  checkOptions(options);
  const { top = 0, prefixScope, signal } = options;
  checkLanguageModel(model);
  checkIds("ids", ids);
  checkWhole("top", top, 0, TOP_MAX);
  if (ids.length === 0) throw new InvalidArgumentError("ids: expected at least one token");
  const decoder = model.createDecoder(prefixScope);
  const found: LogProbabilities[] = [];
  try {
    const { contextLength } = decoder;
    if (ids.length > contextLength) throw promptTooLong(`${ids.length} tokens`, contextLength);
    const rows = ids.length > 1 ? logitRows(decoder, ids.slice(0, -1), 0, signal) : [];
    for await (const row of rows)
      found.push(
        ofLogits(decoder.file, row, () => logProbabilities(row, ids[found.length + 1]!, top, model.program.cpu)),
      );
    return found;
  } finally {
    await decoder.dispose();
  }
}
