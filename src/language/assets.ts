/** Assets that travel with a program (tokenizer, chat template, generation settings) as named data inside the file. */
import type { Program } from "../program/program.ts";
import type { ModelAssets } from "../text/model-assets.ts";

/** Key of tokenizer.json in a program's named data. */
export const TOKENIZER_KEY = "tokenizer.json";

const keys = {
  tokenizerJson: TOKENIZER_KEY,
  tokenizerConfig: "tokenizer_config.json",
  generationConfig: "generation_config.json",
  chatTemplate: "chat_template.jinja",
  textSettings: "text_settings.json",
} as const satisfies Record<Exclude<keyof ModelAssets, "tokenizer">, string>;

const entries = Object.entries(keys) as [keyof typeof keys, string][];

/** Assets as named data of a program. */
export function encodeAssets(texts: ModelAssets): Map<string, Uint8Array> {
  const present = entries.filter(([field]) => (texts[field] ?? null) !== null);
  return new Map(present.map(([field, key]) => [key, new TextEncoder().encode(texts[field]!)]));
}

/**
 * Assets in a program's named data, but for `tokenizer`, which is parsed already; of a program without any, those that
 * `readBeside` finds by file name.
 */
export async function programAssets(
  program: Program,
  readBeside: (file: string) => Promise<string | null> = async () => null,
  tokenizer: unknown = null,
): Promise<ModelAssets> {
  const read = async (key: string): Promise<string | null> => {
    if (tokenizer && key === TOKENIZER_KEY) return null;
    const data = program.namedData.get(key);
    if (data) return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await data.read());
    return program.namedData.size > 0 ? null : readBeside(key);
  };
  const texts = await Promise.all(entries.map(async ([field, key]) => [field, await read(key)] as const));
  return { ...(Object.fromEntries(texts) as unknown as ModelAssets), tokenizer };
}
