/** How a model that makes embeddings or scores reads texts: what stands in front of them, and what its vectors are. */
import { InvalidFileError } from "../errors.ts";

export interface TextSettings {
  /** Texts that stand in front of others, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Name of the prompt that texts have where none is asked for; null for none. */
  readonly defaultPrompt: string | null;
  /** Whether texts are in lower case before they are tokens. */
  readonly isLowerCase: boolean;
  /** Whether vectors have length 1. */
  readonly isNormalized: boolean;
  /** Whether scores are what the network gives, rather than its sigmoid, which is from 0 to 1. */
  readonly isScoreRaw: boolean;
}

/** Settings of a model that says nothing of its texts. */
export const plainSettings: TextSettings = {
  prompts: {},
  defaultPrompt: null,
  isLowerCase: false,
  isNormalized: false,
  isScoreRaw: false,
};

/** Settings from their JSON. InvalidFileError naming `file` where they are none. */
export function readTextSettings(value: Readonly<Record<string, unknown>>, file: string): TextSettings {
  const { prompts = {}, defaultPrompt = null, isLowerCase = false, isNormalized = false, isScoreRaw = false } = value;
  const isPrompts =
    typeof prompts === "object" &&
    prompts !== null &&
    !Array.isArray(prompts) &&
    Object.values(prompts).every((text) => typeof text === "string");
  if (!isPrompts) throw new InvalidFileError(file, "prompts: expected texts by name");
  const texts = prompts as Readonly<Record<string, string>>;
  if (defaultPrompt !== null && !(typeof defaultPrompt === "string" && Object.hasOwn(texts, defaultPrompt)))
    throw new InvalidFileError(file, `defaultPrompt: expected one of prompts but found ${String(defaultPrompt)}`);
  return {
    prompts: texts,
    defaultPrompt,
    isLowerCase: isLowerCase === true,
    isNormalized: isNormalized === true,
    isScoreRaw: isScoreRaw === true,
  };
}
