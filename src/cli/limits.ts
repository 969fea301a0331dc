/** `--limit`: limits of a model's chat template and tokenizer. */
import { InvalidArgumentError } from "commander";
import type { LanguageModel } from "../index.ts";
import { UsageError } from "./usage-error.ts";
import { number } from "./values.ts";

/** A limit: the part that it applies to, its name there, and its value. */
export interface Limit {
  readonly part: "template" | "tokenizer";
  readonly name: string;
  readonly value: number;
}

/** Parses `template.steps=1e8`. */
export function parseLimit(text: string): Limit {
  const [, part, name, value] = /^(template|tokenizer)\.(\w+)=(.+)$/.exec(text) ?? [];
  if (part === undefined)
    throw new InvalidArgumentError(
      `Expected template.NAME=number or tokenizer.NAME=number, such as tokenizer.seconds=60, but found "${text}".`,
    );
  return { part: part as Limit["part"], name: name!, value: number(value!) };
}

/** Sets the limits of a model. UsageError for names that its parts do not have, and for values not above 0. */
export function setLimits(model: LanguageModel, limits: readonly Limit[]): void {
  for (const { part, name, value } of limits) {
    const limited = part === "template" ? model.template : model.hasTokenizer ? model.tokenizer : null;
    if (limited === null) throw new UsageError(`--limit ${part}.${name}: ${model.name} has no ${part}`);
    const known = Object.keys(limited.limits);
    if (!known.includes(name))
      throw new UsageError(`--limit ${part}.${name}: expected one of ${known.join(", ")} behind ${part}.`);
    if (!(value > 0)) throw new UsageError(`--limit ${part}.${name}: expected a number above 0 but found ${value}`);
    limited.limits = { ...limited.limits, [name]: value };
  }
}
