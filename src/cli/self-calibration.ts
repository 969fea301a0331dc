/** The text of `--calibrate`: from a file, or written by the model itself. */
import type { Model } from "../index.ts";
import { type CalibrationText, checkOutput, writeCalibrationText, writeFileWhole } from "../tools/index.ts";
import { type QuantizationOptions, SELF } from "./quantization-options.ts";
import { readTextFile } from "./text-file.ts";
import { UsageError } from "./usage-error.ts";

/** Tokens that the model writes where GPTQ does not need more. */
const TOKENS = 4096;

/** Callbacks of writing a calibration text. */
export interface WritingHooks {
  /** Called as tokens come. */
  readonly onWrite?: (doneTokens: number, totalTokens: number) => void;
  /** Called with the text that the model wrote. */
  readonly onWritten?: (written: CalibrationText) => void;
  readonly signal?: AbortSignal | undefined;
}

/** UsageError for options of a text that the model writes, where `--calibrate` is not `self`. */
export function checkWriting({ calibrate, calibrationSeed, saveCalibration }: QuantizationOptions): void {
  if (calibrate === SELF) return;
  for (const [flag, value] of Object.entries({
    "--calibration-seed": calibrationSeed,
    "--save-calibration": saveCalibration,
  }))
    if (value !== undefined)
      throw new UsageError(`${flag} is for a text that the model writes: expected --calibrate ${SELF}`);
}

/** The texts that calibration reads. */
export interface CalibrationTexts {
  /** The calibration text; undefined without `--calibrate`. */
  readonly text: string | undefined;
  /** Lets the model write a further text, which GPTQ reads beside a text from a file. */
  readonly otherText?: (tokens: number) => Promise<string>;
}

/** The texts that options ask for. */
export async function calibrationTexts(
  model: Model,
  options: QuantizationOptions,
  hooks: WritingHooks,
): Promise<CalibrationTexts> {
  const { calibrate: path, calibrationTokens } = options;
  if (path === undefined) return { text: undefined };
  if (path !== SELF) {
    const text = await readTextFile(path, "the text");
    return model.isEncoder ? { text } : { text, otherText: (tokens) => written(model, tokens, options, hooks) };
  }
  const isGptq = [...model.configs.values()].some(({ algorithm }) => algorithm === "gptq" || algorithm === "awq+gptq");
  return { text: await written(model, calibrationTokens ?? (isGptq ? undefined : TOKENS), options, hooks) };
}

async function written(
  model: Model,
  tokens: number | undefined,
  { calibrationSeed: seed, saveCalibration }: QuantizationOptions,
  { onWrite, onWritten, signal }: WritingHooks,
): Promise<string> {
  if (saveCalibration !== undefined) await checkOutput(saveCalibration, [model.checkpoint.folder]);
  const found = await writeCalibrationText(model, { seed, tokens, signal, ...(onWrite && { onProgress: onWrite }) });
  onWritten?.(found);
  const bytes = new TextEncoder().encode(found.text);
  if (saveCalibration !== undefined) await writeFileWhole(saveCalibration, (sink) => sink.write(bytes));
  return found.text;
}

/** "the model wrote 52,310 characters to calibrate with: chat 18, English 6, code 5". */
export function describeWritten({ text, kinds }: CalibrationText): string {
  const texts = [...kinds].sort(([, a], [, b]) => b - a).map(([kind, count]) => `${kind} ${count}`);
  return `the model wrote ${text.length.toLocaleString("en-US")} characters to calibrate with: ${texts.join(", ")}`;
}
