/** Writes a tokenizer.json as GGUF metadata: the inverse of tokenizer.ts. */
import { InvalidFileError } from "../../errors.ts";
import { isObject, type JsonObject } from "../json.ts";
import { checkAdded, checkScores, type Refuse, refusal, spacePrefix, surroundings, wordsName } from "./expressible.ts";
import type { GgufEntry } from "./writer.ts";

const [NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [1, 2, 3, 4, 5, 6];

export interface TokenizerTexts {
  /** File name, for messages. */
  readonly file: string;
  /** Value of general.name. */
  readonly modelName: string;
  readonly tokenizer: JsonObject;
  readonly chatTemplate: string | null;
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly vocabularySize: number;
}

/** Metadata entries `tokenizer.*`. UnsupportedError for a tokenizer that would encode differently when read back. */
export function tokenizerMetadata(texts: TokenizerTexts): Map<string, GgufEntry> {
  const { file, tokenizer, vocabularySize, eosId: eos } = texts;
  const refuse = refusal(file);
  const model = isObject(tokenizer.model) ? tokenizer.model : {};
  if (model.type !== "BPE" || !isObject(model.vocab)) return refuse(`models of type ${String(model.type)}, only BPE`);
  const isSentencePiece = model.byte_fallback === true;
  const added = Array.isArray(tokenizer.added_tokens) ? tokenizer.added_tokens.filter(isObject) : [];
  checkAdded(added, tokenizer, texts.modelName, refuse);
  const pieces = piecesOf(file, model.vocab, added, vocabularySize);
  const { tokens, kinds } = pieces;
  const merges = mergesOf(model.merges);
  const unknown = typeof model.unk_token === "string" ? tokens.indexOf(model.unk_token) : -1;
  if (unknown >= 0 && isSentencePiece) kinds[unknown] = UNKNOWN!;
  checkBytes(tokens, isSentencePiece, unknown, refuse);
  const entries = new Map<string, GgufEntry>([
    ["tokenizer.ggml.model", { type: "string", value: isSentencePiece ? "llama" : "gpt2" }],
    ["tokenizer.ggml.tokens", { type: "string", value: tokens }],
    ["tokenizer.ggml.token_type", { type: "i32", value: kinds }],
  ]);
  if (isSentencePiece) for (const [id, token] of tokens.entries()) if (isByte(token)) kinds[id] = BYTE!;
  const ordinary = tokens.filter((_, id) => kinds[id] === NORMAL);
  if (isSentencePiece) {
    entries.set("tokenizer.ggml.add_space_prefix", { type: "bool", value: spacePrefix(tokenizer, refuse) });
    checkScores(merges, new Set(Object.keys(model.vocab)), ordinary, refuse);
    entries.set("tokenizer.ggml.scores", { type: "f32", value: scoresOf(tokens, kinds, merges) });
  } else {
    entries.set("tokenizer.ggml.pre", { type: "string", value: wordsName(tokenizer, merges, ordinary, refuse) });
    entries.set("tokenizer.ggml.merges", { type: "string", value: merges.map((pair) => pair.join(" ")) });
  }
  const { before, after } = surroundings(tokenizer.post_processor, refuse);
  if (after !== null && after !== eos) refuse(`token ${after} after a text, which is not the end token`);
  for (const [name, id] of Object.entries({ bos: before ?? texts.bosId, eos, unknown: unknown >= 0 ? unknown : null }))
    if (id !== null) entries.set(`tokenizer.ggml.${name}_token_id`, { type: "u32", value: id });
  entries.set("tokenizer.ggml.add_bos_token", { type: "bool", value: before !== null });
  entries.set("tokenizer.ggml.add_eos_token", { type: "bool", value: after !== null });
  if (texts.chatTemplate !== null)
    entries.set("tokenizer.chat_template", { type: "string", value: texts.chatTemplate });
  return entries;
}

const isByte = (token: string) => /^<0x[0-9A-F]{2}>$/.test(token);

/** GPT-2's byte alphabet: printable bytes stand for themselves, others are characters from U+0100 on. */
function byteCharacters(): string[] {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCodePoint(printable ? byte : next++);
  });
}

/**
 * Checks that there is a token for every byte: without one, llama.cpp fails, or drops text that tokenizer.json makes an unknown
 * token.
 */
function checkBytes(tokens: readonly string[], isSentencePiece: boolean, unknown: number, refuse: Refuse): void {
  const known = new Set(tokens);
  const count = isSentencePiece
    ? tokens.filter(isByte).length
    : byteCharacters().filter((character) => known.has(character)).length;
  if (count < 256 && (isSentencePiece || unknown >= 0)) refuse(`a vocabulary with ${count} tokens of bytes, not 256`);
}

function piecesOf(
  file: string,
  vocabulary: JsonObject,
  added: readonly JsonObject[],
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
  for (const item of added)
    if (typeof item.content === "string")
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

/** Scores of pieces: the first merge has the highest; pieces that no merge makes come last. */
function scoresOf(tokens: readonly string[], kinds: readonly number[], merges: readonly [string, string][]): number[] {
  const ranks = new Map<string, number>();
  for (const [rank, [left, right]] of merges.entries()) if (!ranks.has(left + right)) ranks.set(left + right, rank);
  return tokens.map((token, id) => (kinds[id] === NORMAL ? -(ranks.get(token) ?? merges.length) : 0));
}
