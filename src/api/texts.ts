/** The texts that travel with a program: tokenizer, chat template, generation settings; as named data inside the file. */
import { InvalidFileError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { Program } from "../program/program.ts";
import { ChatTemplate } from "../text/chat-template.ts";
import { Tokenizer } from "../text/tokenizer.ts";

/** Each null when there is none. */
export interface ModelTexts {
  readonly tokenizerJson: string | null;
  readonly tokenizerConfig: string | null;
  readonly generationConfig: string | null;
  readonly chatTemplate: string | null;
}

const keys = {
  tokenizerJson: "tokenizer.json",
  tokenizerConfig: "tokenizer_config.json",
  generationConfig: "generation_config.json",
  chatTemplate: "chat_template.jinja",
} as const satisfies Record<keyof ModelTexts, string>;

const entries = Object.entries(keys) as [keyof ModelTexts, string][];

export function textsOf(checkpoint: Checkpoint): ModelTexts {
  return {
    tokenizerJson: checkpoint.tokenizerJson?.text ?? null,
    tokenizerConfig: checkpoint.tokenizerConfig?.text ?? null,
    generationConfig: checkpoint.generationConfig?.text ?? null,
    chatTemplate: checkpoint.chatTemplate,
  };
}

/** Named data of a program. */
export function encodeTexts(texts: ModelTexts): Map<string, Uint8Array> {
  const present = entries.filter(([field]) => texts[field] !== null);
  return new Map(present.map(([field, key]) => [key, new TextEncoder().encode(texts[field]!)]));
}

/** Texts in a program's named data; of a program without any, those that `readBeside` finds by file name. */
export async function programTexts(
  program: Program,
  readBeside: (file: string) => Promise<string | null> = async () => null,
): Promise<ModelTexts> {
  const read = async (key: string): Promise<string | null> => {
    const data = program.namedData.get(key);
    if (data) return new TextDecoder().decode(await data.read());
    return program.namedData.size > 0 ? null : readBeside(key);
  };
  const texts = await Promise.all(entries.map(async ([field, key]) => [field, await read(key)] as const));
  return Object.fromEntries(texts) as unknown as ModelTexts;
}

/** Tokenizer and chat template; null where the texts have none. `name` is for messages. */
export function readTexts(
  texts: ModelTexts,
  name: string,
): { tokenizer: Tokenizer | null; template: ChatTemplate | null } {
  const { tokenizerJson, tokenizerConfig, chatTemplate } = texts;
  return {
    tokenizer: tokenizerJson
      ? new Tokenizer(
          parse(tokenizerJson, `${name}, tokenizer.json`),
          tokenizerConfig ? parse(tokenizerConfig, `${name}, tokenizer_config.json`) : null,
          `${name.slice(name.search(/[^\\/]*$/))}, tokenizer.json`,
        )
      : null,
    template: chatTemplate ? new ChatTemplate(chatTemplate, `${name}, chat template`) : null,
  };
}

export function parse(text: string, file: string): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new InvalidFileError(file, `is not valid JSON: ${(cause as Error).message}`, { cause });
  }
}
