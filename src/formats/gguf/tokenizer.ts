/**
 * Converts a GGUF file's tokenizer to tokenizer.json and tokenizer_config.json: SentencePiece BPE (pieces with scores) and
 * byte-level BPE (pieces with merges).
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { type JsonObject, quote } from "../json.ts";
import { endTokens, isEndText } from "./end-tokens.ts";
import { stripsAfter } from "./expressible.ts";
import type { GgufMetadata } from "./metadata.ts";
import { DEFAULT_PRE, type PreTokenizer, preTokenizerNamed, preTokenizerNames } from "./pretokenizers.ts";

/** Numbers of piece types. */
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;

export interface GgufTokenizer {
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
  readonly eosIds: readonly number[];
  readonly bosId: number | null;
  /** Sentences about what was assumed because the file does not say it. */
  readonly notes: readonly string[];
}

/** Defaults for what a file does not say. */
interface Defaults {
  readonly addBos: boolean;
  readonly ids: Readonly<Record<string, number | null>>;
}

interface Vocabulary {
  readonly file: string;
  readonly pieces: readonly string[];
  readonly types: readonly number[];
  readonly scores: readonly number[] | null;
}

/** The file's tokenizer; null when it has none. UnsupportedError for an unsupported kind. */
export function ggufTokenizer(metadata: GgufMetadata): GgufTokenizer | null {
  const kind = metadata.string("tokenizer.ggml.model");
  const stored = metadata.strings("tokenizer.ggml.tokens");
  if (kind === null || kind === "none" || kind === "no_vocab" || stored === null) return null;
  const pieces = stored.map((piece, id) => piece || `[EMPTY_${id}]`);
  const types = metadata.numbers("tokenizer.ggml.token_type") ?? pieces.map(() => 1);
  const scores = metadata.numbers("tokenizer.ggml.scores");
  for (const [name, list] of [["token_type", types] as const, ["scores", scores] as const])
    if (list && list.length !== pieces.length)
      throw new InvalidFileError(
        metadata.file,
        `tokenizer.ggml.${name} has ${list.length} entries but tokens has ${pieces.length}`,
      );
  const vocabulary = { file: metadata.file, pieces, types, scores };
  if (kind === "llama") {
    const defaults = { addBos: true, ids: { bos: 1, eos: 2, unknown: 0 } };
    const merges = mergesOfScores(vocabulary);
    return withSpecials(metadata, vocabulary, sentencePiece(metadata, vocabulary, merges), defaults);
  }
  if (kind === "gemma4") {
    const defaults = { addBos: true, ids: { bos: 2, eos: 1, unknown: 3 } };
    return withSpecials(metadata, vocabulary, sentencePiece(metadata, vocabulary, storedMerges(metadata)), defaults);
  }
  if (kind === "gpt2") return byteLevelTokenizer(metadata, vocabulary);
  throw new UnsupportedError(`${metadata.file}: tokenizer "${kind}" is not supported, only llama, gemma4 and gpt2`);
}

/** A token id from metadata. It may be no token's id: -1 and the largest integer mean none, which llama.cpp ignores. */
function tokenId(metadata: GgufMetadata, name: string): number | null {
  const id = metadata.integer(`tokenizer.ggml.${name}_token_id`);
  return id === null ? null : Number(id);
}

/** Ids by piece; a duplicate piece has its first id. */
function idsOf(pieces: readonly string[]): Map<string, number> {
  const ids = new Map<string, number>();
  for (const [id, piece] of pieces.entries()) if (!ids.has(piece)) ids.set(piece, id);
  return ids;
}

/** All pairs of pieces that make a piece, highest score first, the order in which SentencePiece merges. */
function mergesOfScores({ pieces, scores, types }: Vocabulary): [string, string][] {
  const ids = idsOf(pieces);
  const merges: { readonly pair: [string, string]; readonly score: number }[] = [];
  for (const [id, piece] of pieces.entries()) {
    if (types[id] !== 1 && types[id] !== USER_DEFINED) continue;
    const characters = [...piece];
    for (let cut = 1; cut < characters.length; cut++) {
      const pair: [string, string] = [characters.slice(0, cut).join(""), characters.slice(cut).join("")];
      if (ids.has(pair[0]) && ids.has(pair[1])) merges.push({ pair, score: scores?.[id] ?? 0 });
    }
  }
  return merges.sort((a, b) => b.score - a.score).map(({ pair }) => pair);
}

/** The file's merges, stored as pairs separated by a space. */
function storedMerges(metadata: GgufMetadata): [string, string][] {
  const { file } = metadata;
  const merges = metadata.strings("tokenizer.ggml.merges");
  if (!merges) throw new InvalidFileError(file, "expected metadata tokenizer.ggml.merges");
  return merges.map((merge) => {
    const cut = merge.indexOf(" ", 1);
    if (cut < 0) throw new InvalidFileError(file, "tokenizer.ggml.merges has an entry that is no pair");
    return [merge.slice(0, cut), merge.slice(cut + 1)];
  });
}

/** A SentencePiece tokenizer: spaces become ▁, and unknown characters become byte tokens. */
function sentencePiece(metadata: GgufMetadata, vocabulary: Vocabulary, merges: [string, string][]): JsonObject {
  const prefix = metadata.boolean("tokenizer.ggml.add_space_prefix") ?? true;
  const unknown = tokenId(metadata, "unknown") ?? vocabulary.types.indexOf(UNKNOWN);
  const replace = { type: "Replace", pattern: { String: " " }, content: "▁" };
  const restore = [
    { type: "Replace", pattern: { String: "▁" }, content: " " },
    { type: "ByteFallback" },
    { type: "Fuse" },
    ...(prefix ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : []),
  ];
  return {
    normalizer: { type: "Sequence", normalizers: prefix ? [{ type: "Prepend", prepend: "▁" }, replace] : [replace] },
    pre_tokenizer: null,
    decoder: { type: "Sequence", decoders: restore },
    model: {
      type: "BPE",
      vocab: Object.fromEntries(idsOf(vocabulary.pieces)),
      merges,
      unk_token: vocabulary.pieces[unknown] ?? null,
      fuse_unk: true,
      byte_fallback: true,
    },
  };
}

function byteLevelTokenizer(metadata: GgufMetadata, vocabulary: Vocabulary): GgufTokenizer {
  const { file } = metadata;
  const name = metadata.string("tokenizer.ggml.pre") || null;
  const pre = preTokenizerNamed(name ?? DEFAULT_PRE);
  if (!pre)
    throw new UnsupportedError(
      `${file}: tokenizer.ggml.pre ${quote(name!)} is not supported, only ${preTokenizerNames.join(", ")}`,
    );
  const ids = { bos: pre.bos === "none" ? null : 11, eos: 11 };
  const parts = byteLevel(metadata, vocabulary, pre);
  const found = withSpecials(metadata, vocabulary, parts, { addBos: pre.bos === true, ids });
  const note = `${file}: names no pre-tokenizer (tokenizer.ggml.pre), so words are cut by llama.cpp's "${DEFAULT_PRE}"; texts may come out worse`;
  return name === null ? { ...found, notes: [note] } : found;
}

function byteLevel(metadata: GgufMetadata, vocabulary: Vocabulary, pre: PreTokenizer): JsonObject {
  const splits = pre.patterns.map((pattern) => ({
    type: "Split",
    pattern: { Regex: pattern },
    behavior: "Isolated",
    invert: false,
  }));
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false };
  return {
    normalizer: null,
    pre_tokenizer: { type: "Sequence", pretokenizers: [...splits, bytes] },
    decoder: bytes,
    model: {
      type: "BPE",
      vocab: Object.fromEntries(idsOf(vocabulary.pieces)),
      merges: storedMerges(metadata),
      ignore_merges: pre.wholeWords ?? false,
    },
  };
}

/** Adds control tokens, the special tokens around a text, and the chat template. */
function withSpecials(
  metadata: GgufMetadata,
  { pieces, types }: Vocabulary,
  parts: JsonObject,
  defaults: Defaults,
): GgufTokenizer {
  const idOf = (name: string): number | null => {
    const isPiece = (id: number | null): id is number => id !== null && pieces[id] !== undefined;
    const assumed = defaults.ids[name] ?? null;
    return [tokenId(metadata, name), assumed].find(isPiece) ?? null;
  };
  const [bos, eos] = [idOf("bos"), idOf("eos")];
  const eosIds = endTokens(idsOf(pieces), eos, idOf);
  const ends = new Set(eosIds);
  const modelName = metadata.string("general.name") ?? "";
  const added = pieces.flatMap((content, id) => {
    const special = types[id] === CONTROL || types[id] === UNKNOWN || (ends.has(id) && isEndText(content));
    if (!special && types[id] !== USER_DEFINED) return [];
    const rstrip = stripsAfter(modelName, content);
    return [{ id, content, special, single_word: false, lstrip: false, rstrip, normalized: false }];
  });
  const around = {
    before: bos !== null && (metadata.boolean("tokenizer.ggml.add_bos_token") ?? defaults.addBos) ? bos : null,
    after: eos !== null && (metadata.boolean("tokenizer.ggml.add_eos_token") ?? false) ? eos : null,
  };
  const named = { bos_token: bos, eos_token: eos, unk_token: idOf("unknown"), pad_token: idOf("padding") };
  const texts = Object.entries(named).flatMap(([name, id]) => (id === null ? [] : [[name, pieces[id]!] as const]));
  return {
    tokenizer: { version: "1.0", added_tokens: added, post_processor: surrounding(around, pieces), ...parts },
    config: Object.fromEntries(texts),
    eosIds,
    bosId: bos,
    notes: [],
  };
}

function surrounding(
  { before, after }: { before: number | null; after: number | null },
  pieces: readonly string[],
): JsonObject | null {
  const ids = [before, after].filter((id) => id !== null);
  if (ids.length === 0) return null;
  const token = (id: number | null) => (id === null ? [] : [{ SpecialToken: { id: pieces[id]!, type_id: 0 } }]);
  const entries = ids.map((id) => [pieces[id]!, { id: pieces[id]!, ids: [id], tokens: [pieces[id]!] }]);
  return {
    type: "TemplateProcessing",
    single: [...token(before), { Sequence: { id: "A", type_id: 0 } }, ...token(after)],
    pair: [...token(before), { Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
    special_tokens: Object.fromEntries(entries),
  };
}
