/** Merges two older files of model folders, added_tokens.json and special_tokens_map.json, into tokenizer_config.json. */
import { InvalidFileError } from "../errors.ts";
import { pythonJson } from "../json-text.ts";
import { describe, isObject, type JsonFile, type JsonObject, jsonFile, quote } from "./json.ts";

/** Files of a model folder about tokens, each null when absent. */
export interface TokenFiles {
  readonly tokenizerJson: JsonFile | null;
  readonly tokenizerConfig: JsonFile | null;
  readonly addedTokens: JsonFile | null;
  readonly specialTokensMap: JsonFile | null;
}

/**
 * Merges the older files into tokenizer_config.json. As in transformers, they count only where it has no
 * `added_tokens_decoder`: the map's names replace its own, and tokens that tokenizer.json does not list are added with their
 * ids. `folder` is for messages. InvalidFileError for entries that are not tokens.
 */
export function withOlderFiles(folder: string, files: TokenFiles): JsonFile | null {
  const { tokenizerConfig, addedTokens, specialTokensMap } = files;
  if (!addedTokens && !specialTokensMap) return tokenizerConfig;
  const config = tokenizerConfig?.value ?? {};
  if (Object.hasOwn(config, "added_tokens_decoder")) return tokenizerConfig;
  const named = { ...config, ...specialTokensMap?.value };
  const added = addedTokens ? decoderOf(folder, addedTokens.value, files.tokenizerJson?.value ?? {}, named) : {};
  const merged = Object.keys(added).length > 0 ? { ...named, added_tokens_decoder: added } : named;
  return jsonFile(`${folder}/tokenizer_config.json`, pythonJson(merged));
}

function decoderOf(folder: string, ids: JsonObject, tokenizer: JsonObject, named: JsonObject): JsonObject {
  const file = `${folder}/added_tokens.json`;
  const listed = Array.isArray(tokenizer.added_tokens) ? tokenizer.added_tokens : [];
  const known = new Set(listed.map((token) => (isObject(token) ? token.content : undefined)));
  const special = new Set(Object.entries(named).flatMap(([key, value]) => textsOf(key, value)));
  const tokens: Record<string, JsonObject> = {};
  for (const [content, id] of Object.entries(ids)) {
    if (!Number.isInteger(id) || (id as number) < 0)
      throw new InvalidFileError(file, `token ${quote(content)}: expected an id from 0 but found ${describe(id)}`);
    if (known.has(content)) continue;
    if (Object.hasOwn(tokens, String(id)))
      throw new InvalidFileError(file, `token ${quote(content)}: another token has the id ${id}`);
    const isSpecial = special.has(content);
    const flags = { lstrip: false, rstrip: false, single_word: false, normalized: !isSpecial, special: isSpecial };
    tokens[String(id)] = { content, ...flags };
  }
  return tokens;
}

/** Texts of the special tokens in an entry. */
function textsOf(key: string, value: unknown): unknown[] {
  if (key.endsWith("_token")) return [isObject(value) ? value.content : value];
  if (key !== "extra_special_tokens" && key !== "additional_special_tokens") return [];
  const list = typeof value === "object" && value !== null ? Object.values(value) : [];
  return list.map((token) => (isObject(token) ? token.content : token));
}
