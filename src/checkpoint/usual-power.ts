/**
 * Typical inputs of a model's linear layers, for quantization without a text: mean squares of their inputs while the model
 * reads beginnings of texts in several languages, code and questions. Errors of weights with large inputs count more.
 */
import { logInfo } from "../log.ts";
import { isEncoderNetwork } from "../model/encoder.ts";
import {
  calibrationWindows,
  FloatWalk,
  type LinearLayer,
  type WalkedModel,
  type WalkOptions,
} from "./calibrate/walk.ts";
import { beginnings, questions } from "./calibration-beginnings.ts";

/** Tokens that are read: on SmolLM2-135M, 4,096 tokens of a book give no better weights. */
const TOKENS = 128;
/** Least tokens of an expert; for fewer, `expectedPower` is used. */
const TOKENS_LEAST = 16;
/** Share of the mean that is added to mean squares. */
export const IMPORTANCE_DAMPING = 0.01;
/**
 * Share of the mean for an embedding that is the head, too: errors of rows that are looked up count in all columns alike.
 */
export const TABLE_DAMPING = 0.1;

/** Options of `usualPower`. */
interface UsualOptions extends Pick<WalkOptions, "signal"> {
  /** Called with each linear layer. */
  readonly visit?: (layer: LinearLayer) => Promise<void>;
}

/** Mean squares of inputs by slot name; empty for a checkpoint without a tokenizer. Errors are those of its files. */
export async function usualPower(
  model: WalkedModel,
  options: UsualOptions = {},
): Promise<ReadonlyMap<string, Float32Array>> {
  const found = new Map<string, Float32Array>();
  if (!model.checkpoint.tokenizerJson) return found;
  const text = [...Object.values(beginnings).flat(), ...questions].join("\n");
  const windows = calibrationWindows(model, text, { maxTokens: TOKENS });
  const least = isEncoderNetwork(model.network) ? 1 : Math.min(TOKENS_LEAST, windows[0]!.length);
  await new FloatWalk(model, windows, options).visit(async (layer) => {
    const { name, tokens, power } = layer;
    await options.visit?.(layer);
    if (tokens < least) return null;
    const squares = power();
    const isUsable = squares.every((value) => value < Number.POSITIVE_INFINITY) && squares.some((value) => value > 0);
    if (isUsable) found.set(name, squares);
    return null;
  });
  logInfo(() => `read ${windows.flat().length} tokens to see what goes into ${found.size} matrices`);
  return found;
}

/** The text's share in the exponents of `besideUsual`; of 0.5, 0.7 and 1, that of least output error on other texts. */
const TEXT_SHARE = 0.7;

/**
 * Mean squares of inputs in a text, weighted with those of typical inputs to their geometric means, so that weights stay good
 * for inputs that the text lacks. Those of the text alone where typical ones are unknown.
 */
export function besideUsual(power: Float32Array, usual: Float32Array | undefined): Float32Array {
  return usual ? power.map((value, c) => value ** TEXT_SHARE * usual[c]! ** (1 - TEXT_SHARE)) : power;
}

/** Mean squares divided by their mean, plus `damping`. */
export function damped(power: Float32Array, damping: number): Float32Array {
  const mean = power.reduce((sum, value) => sum + value, 0) / power.length;
  return mean === 0 ? new Float32Array(power.length).fill(1) : power.map((value) => value / mean + damping);
}

/** Mean squares of inputs after their channels are divided by factors. */
export function dividedPower(power: Float32Array, factors: Float32Array | null): Float32Array {
  return factors ? power.map((value, c) => value / factors[c]! ** 2) : power;
}
