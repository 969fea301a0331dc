/** Files of a model that say how it reads and writes: tokenizer, chat template, generation settings. */

import { InvalidFileError } from "../errors.ts";
import { parsePythonJson } from "../json-text.ts";
import { logInfo } from "../log.ts";
import { ChatTemplate } from "./chat-template.ts";
import { Tokenizer } from "./tokenizer.ts";

/** Contents of the files; null where a file is absent. */
export interface ModelAssets {
  /** Contents of tokenizer.json, null when absent. */
  readonly tokenizerJson: string | null;
  /** Contents of tokenizer.json, parsed, where they are kept in another form than its text; null or absent otherwise. */
  readonly tokenizer?: unknown;
  /** Contents of tokenizer_config.json, null when absent. */
  readonly tokenizerConfig: string | null;
  /** Contents of generation_config.json, null when absent. */
  readonly generationConfig: string | null;
  /** The chat template's Jinja text, null when absent. */
  readonly chatTemplate: string | null;
  /** JSON of TextSettings, for models that make embeddings or scores; null or absent for others. */
  readonly textSettings?: string | null;
}

/** Parses the tokenizer and chat template; null for those that are absent. `name` is for messages. */
export function readAssets(
  texts: ModelAssets,
  name: string,
): { tokenizer: Tokenizer | null; template: ChatTemplate | null } {
  const { tokenizerJson, tokenizerConfig, chatTemplate } = texts;
  const file = texts.tokenizer ?? (tokenizerJson && parse(tokenizerJson, `${name}, tokenizer.json`));
  const tokenizer = file
    ? new Tokenizer(
        file,
        tokenizerConfig ? parse(tokenizerConfig, `${name}, tokenizer_config.json`) : null,
        `${name.slice(name.search(/[^\\/]*$/))}, tokenizer.json`,
      )
    : null;
  const lengths = (["truncation", "padding"] as const).filter((key) => tokenizer?.[key]);
  if (lengths.length > 0)
    logInfo(
      () =>
        `${name}, tokenizer.json: ${lengths.join(" and ")}: for tokenizer.encode(); prompts are never cut or padded`,
    );
  return {
    tokenizer,
    template: chatTemplate ? new ChatTemplate(chatTemplate, `${name}, chat template`) : null,
  };
}

export function parse(text: string, file: string): Record<string, unknown> {
  try {
    return parsePythonJson(text) as Record<string, unknown>;
  } catch (cause) {
    throw new InvalidFileError(file, `is not valid JSON: ${(cause as Error).message}`, { cause });
  }
}
