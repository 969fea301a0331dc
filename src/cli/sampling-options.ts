/** Options of sampling and of where an answer ends, for run and chat. */
import type { Command } from "commander";
import type { GenerateOptions } from "../index.ts";
import { collect, logitBias, number, wholeNumber } from "./values.ts";

export interface SamplingOptions {
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repeatPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly logitBias?: Record<number, number>;
  readonly seed?: number;
  readonly stop?: readonly string[];
  readonly stopToken?: readonly number[];
  readonly ignoreEos?: boolean;
}

export function addSamplingOptions(command: Command): Command {
  return command
    .optionsGroup("Sampling (defaults are the model's own, greedy where it has none):")
    .option(
      "-n, --max-tokens <count>",
      "most tokens to generate (default: the model's own, else until the context is full)",
      wholeNumber,
    )
    .option("--temperature <t>", "divides the logits; 0 is greedy", number)
    .option("--top-k <k>", "keep the k most likely tokens; 0 keeps all", wholeNumber)
    .option("--top-p <p>", "keep the most likely tokens that reach probability p", number)
    .option("--min-p <p>", "drop tokens less likely than p times the most likely", number)
    .option("--repeat-penalty <x>", "divide the logits of recent tokens; 1 is off", number)
    .option("--presence-penalty <x>", "subtract once from the logit of each recent token", number)
    .option("--frequency-penalty <x>", "subtract for each occurrence of a recent token", number)
    .option("--logit-bias <id=bias>", "add to the logit of a token, -inf bans it; repeatable", logitBias)
    .option(
      "--seed <n>",
      "equal seeds give equal text with the same program, CPU, backend and number of threads",
      wholeNumber,
    )
    .option("--stop <text>", "text that ends the generation; repeatable", collect(String))
    .option("--stop-token <id>", "token id that ends the generation; repeatable", collect(wholeNumber))
    .option("--ignore-eos", "go on after the model's end tokens");
}

/** The given options under the library's names. */
export function generateOptions(options: SamplingOptions): GenerateOptions {
  const { repeatPenalty, stopToken, maxTokens, temperature, topK, topP, minP } = options;
  const { presencePenalty, frequencyPenalty, logitBias, seed, stop, ignoreEos } = options;
  const all = {
    ...{
      maxTokens,
      temperature,
      topK,
      topP,
      minP,
      presencePenalty,
      frequencyPenalty,
      logitBias,
      seed,
      stop,
      ignoreEos,
    },
    repetitionPenalty: repeatPenalty,
    stopTokens: stopToken,
  };
  // Fields that are undefined would hide the model's own defaults.
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}
