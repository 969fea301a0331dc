/** tokenizer.json as the metadata of a GGUF file: the inverse of tokenizer.ts. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { isObject, type JsonObject } from "../json.ts";
import { CONTRACTIONS, pretokenizers } from "./pretokenizers.ts";
import type { GgufEntry } from "./writer.ts";

const [NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [1, 2, 3, 4, 5, 6];

export interface TokenizerTexts {
  /** For messages. */
  readonly file: string;
  readonly tokenizer: JsonObject;
  readonly chatTemplate: string | null;
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly vocabularySize: number;
}

/** Entries `tokenizer.*`; UnsupportedError for a tokenizer that GGUF files of this package's reader do not have. */
export function tokenizerMetadata(texts: TokenizerTexts): Map<string, GgufEntry> {
  const { file, tokenizer, vocabularySize } = texts;
  const model = isObject(tokenizer.model) ? tokenizer.model : {};
  if (model.type !== "BPE" || !isObject(model.vocab))
    throw new UnsupportedError(`${file}: tokenizers of type ${String(model.type)} are not written to GGUF, only BPE`);
  const isSentencePiece = model.byte_fallback === true;
  const pieces = piecesOf(file, model.vocab, tokenizer.added_tokens, vocabularySize);
  const { tokens, kinds } = pieces;
  const merges = mergesOf(model.merges);
  const unknown = typeof model.unk_token === "string" ? tokens.indexOf(model.unk_token) : -1;
  if (unknown >= 0 && isSentencePiece) kinds[unknown] = UNKNOWN!;
  if (isSentencePiece)
    for (const [id, token] of tokens.entries()) if (/^<0x[0-9A-F]{2}>$/.test(token)) kinds[id] = BYTE!;
  const entries = new Map<string, GgufEntry>([
    ["tokenizer.ggml.model", { type: "string", value: isSentencePiece ? "llama" : "gpt2" }],
    ["tokenizer.ggml.tokens", { type: "string", value: tokens }],
    ["tokenizer.ggml.token_type", { type: "i32", value: kinds }],
  ]);
  if (isSentencePiece) {
    entries.set("tokenizer.ggml.scores", { type: "f32", value: scoresOf(tokens, kinds, merges) });
    entries.set("tokenizer.ggml.add_space_prefix", { type: "bool", value: hasPrefix(tokenizer) });
  } else {
    entries.set("tokenizer.ggml.pre", { type: "string", value: pretokenizerName(file, tokenizer.pre_tokenizer) });
    entries.set("tokenizer.ggml.merges", { type: "string", value: merges.map((pair) => pair.join(" ")) });
  }
  const ids = { bos: texts.bosId, eos: texts.eosId, unknown: unknown >= 0 ? unknown : null };
  for (const [name, id] of Object.entries(ids))
    if (id !== null) entries.set(`tokenizer.ggml.${name}_token_id`, { type: "u32", value: id });
  entries.set("tokenizer.ggml.add_bos_token", { type: "bool", value: startsWithSpecial(tokenizer.post_processor) });
  entries.set("tokenizer.ggml.add_eos_token", { type: "bool", value: false });
  if (texts.chatTemplate !== null)
    entries.set("tokenizer.chat_template", { type: "string", value: texts.chatTemplate });
  return entries;
}

function piecesOf(
  file: string,
  vocabulary: JsonObject,
  added: unknown,
  size: number,
): { tokens: string[]; kinds: number[] } {
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const kinds = tokens.map(() => UNUSED!);
  const place = (piece: string, id: unknown, kind: number) => {
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= size)
      throw new InvalidFileError(file, `tokenizer: id ${String(id)} is beyond the vocabulary of ${size}`);
    tokens[id as number] = piece;
    kinds[id as number] = kind;
  };
  for (const [piece, id] of Object.entries(vocabulary)) place(piece, id, NORMAL!);
  for (const item of Array.isArray(added) ? added : [])
    if (isObject(item) && typeof item.content === "string")
      place(item.content, item.id, item.special === true ? CONTROL! : USER_DEFINED!);
  return { tokens, kinds };
}

function mergesOf(merges: unknown): [string, string][] {
  const list: unknown[] = Array.isArray(merges) ? merges : [];
  return list.map((merge) => {
    if (typeof merge !== "string") return merge as [string, string];
    const cut = merge.indexOf(" ", 1);
    return [merge.slice(0, cut), merge.slice(cut + 1)];
  });
}

/** What is joined first has the highest score; pieces that no merge makes come last. */
function scoresOf(tokens: readonly string[], kinds: readonly number[], merges: readonly [string, string][]): number[] {
  const ranks = new Map<string, number>();
  for (const [rank, [left, right]] of merges.entries()) if (!ranks.has(left + right)) ranks.set(left + right, rank);
  return tokens.map((token, id) => (kinds[id] === NORMAL ? -(ranks.get(token) ?? merges.length) : 0));
}

/** Whether a space is put in front of texts. */
function hasPrefix({ normalizer, pre_tokenizer: before }: JsonObject): boolean {
  const parts = isObject(normalizer) && Array.isArray(normalizer.normalizers) ? normalizer.normalizers : [normalizer];
  if (parts.some((part) => isObject(part) && part.type === "Prepend")) return true;
  return isObject(before) && before.type === "Metaspace" && before.prepend_scheme !== "never";
}

/** GGUF's name for how words are cut. */
function pretokenizerName(file: string, pretokenizer: unknown): string {
  const steps = isObject(pretokenizer)
    ? ((pretokenizer.pretokenizers as JsonObject[] | undefined) ?? [pretokenizer])
    : [];
  const patterns = steps.flatMap((step) => {
    if (step.type === "ByteLevel") return step.use_regex === false ? [] : pretokenizers["gpt-2"]!;
    if (step.type === "Digits") return ["\\p{N}"];
    const { Regex } = isObject(step.pattern) ? step.pattern : {};
    return [typeof Regex === "string" ? Regex.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", CONTRACTIONS) : `${step.type}`];
  });
  const found = Object.entries(pretokenizers).find(([, known]) => known.join("\n") === patterns.join("\n"));
  if (found) return found[0];
  throw new UnsupportedError(`${file}: tokenizer: GGUF has no name for words cut by ${patterns.join(" then ")}`);
}

/** Whether a special token is put in front of texts. */
function startsWithSpecial(processor: unknown): boolean {
  if (!isObject(processor)) return false;
  if (Array.isArray(processor.processors)) return processor.processors.some(startsWithSpecial);
  const [first] = Array.isArray(processor.single) ? processor.single : [];
  return processor.type === "TemplateProcessing" && isObject(first) && isObject(first.SpecialToken);
}
