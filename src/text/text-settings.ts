/** How an embedding model or reranker reads texts and what it outputs: prompts before texts, normalization, sigmoid. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";

export interface TextSettings {
  /** Prompts to put before texts, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Name of the prompt to use where none is asked for; null for none. */
  readonly defaultPrompt: string | null;
  /** Whether texts are lowercased before tokenization. */
  readonly isLowerCase: boolean;
  /** Whether embeddings are normalized to length 1. */
  readonly isNormalized: boolean;
  /** Whether scores are the network's raw output rather than its sigmoid, from 0 to 1. */
  readonly isScoreRaw: boolean;
  /**
   * Variables of the chat template, for rerankers that write a pair as a conversation of a "query" and a "document"; null for
   * others.
   */
  readonly pairVariables: Readonly<Record<string, unknown>> | null;
}

/** Settings of a model without settings of its own. */
export const plainSettings: TextSettings = {
  prompts: {},
  defaultPrompt: null,
  isLowerCase: false,
  isNormalized: false,
  isScoreRaw: false,
  pairVariables: null,
};

/** Reads settings from JSON. InvalidFileError naming `file` for invalid ones. */
export function readTextSettings(value: Readonly<Record<string, unknown>>, file: string): TextSettings {
  const { prompts = {}, defaultPrompt = null } = value;
  const isPrompts =
    typeof prompts === "object" &&
    prompts !== null &&
    !Array.isArray(prompts) &&
    Object.values(prompts).every((text) => typeof text === "string");
  if (!isPrompts) throw new InvalidFileError(file, "prompts: expected texts by name");
  const texts = prompts as Readonly<Record<string, string>>;
  if (defaultPrompt !== null && !(typeof defaultPrompt === "string" && Object.hasOwn(texts, defaultPrompt)))
    throw new InvalidFileError(file, `defaultPrompt: expected one of prompts but found ${shown(defaultPrompt)}`);
  return {
    prompts: texts,
    defaultPrompt,
    isLowerCase: value.isLowerCase === true,
    isNormalized: value.isNormalized === true,
    isScoreRaw: value.isScoreRaw === true,
    pairVariables: isVariables(value.pairVariables) ? value.pairVariables : null,
  };
}

const isVariables = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The text of a named prompt, by default the model's own choice; null for none. InvalidArgumentError for an unknown name. */
export function namedPrompt(
  { prompts, defaultPrompt }: TextSettings,
  name: string | null | undefined = defaultPrompt,
): string | null {
  if (name === null) return null;
  if (typeof name === "string" && Object.hasOwn(prompts, name)) return prompts[name]!;
  const names = Object.keys(prompts);
  const known = names.length > 0 ? `one of ${names.join(", ")}` : "none, as the model has no prompts,";
  throw new InvalidArgumentError(`prompt: expected ${known} but found ${shown(name)}`);
}
