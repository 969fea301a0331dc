/** The sampling settings of the form, for a generation. */
import { type GenerateOptions, InvalidArgumentError } from "lowbit/web";

const names = ["temperature", "topK", "topP", "repetitionPenalty", "seed", "maxTokens"] as const;

/** Of what is filled in; the rest is left to the model. InvalidArgumentError for what is no number. */
export function readSettings(): GenerateOptions {
  const settings: Partial<Record<(typeof names)[number], number>> = {};
  for (const name of names) {
    const { value, validity } = document.getElementById(name) as HTMLInputElement;
    if (validity.badInput) throw new InvalidArgumentError(`${name}: expected a number`);
    if (value.trim() !== "") settings[name] = Number(value);
  }
  return settings;
}
