/** How a model that makes embeddings or scores reads texts: what stands in front of them, and what its vectors are. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";

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
  /**
   * Variables of the chat template where it writes out a pair, as a conversation of a "query" and a "document"; null where
   * pairs are no conversations.
   */
  readonly pairVariables: Readonly<Record<string, unknown>> | null;
}

/** Settings of a model that says nothing of its texts. */
export const plainSettings: TextSettings = {
  prompts: {},
  defaultPrompt: null,
  isLowerCase: false,
  isNormalized: false,
  isScoreRaw: false,
  pairVariables: null,
};

/** Settings from their JSON. InvalidFileError naming `file` where they are none. */
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

/** The prompt of a name, by default the model's own choice; null for none. InvalidArgumentError for no name of a prompt. */
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
