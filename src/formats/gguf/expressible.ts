/**
 * Checks that a tokenizer.json can be expressed as GGUF metadata: anything neither written nor implied by a written name would
 * be lost silently, and llama.cpp would encode the same text to other tokens.
 */
import { UnsupportedError } from "../../errors.ts";
import { describe, isObject, type JsonObject, quote } from "../json.ts";
import { CONTRACTIONS, preTokenizerName, preTokenizerNamed } from "./pretokenizers.ts";

/** Throws an error that names what GGUF cannot express. */
export type Refuse = (what: string) => never;

export function refusal(file: string): Refuse {
  return (what) => {
    throw new UnsupportedError(`${file}: tokenizer: GGUF files cannot express ${what}`);
  };
}

/** Items of a `Sequence`, or the single component. */
function itemsOf(part: unknown, list: string): readonly JsonObject[] {
  if (!isObject(part)) return [];
  const items = part.type === "Sequence" ? part[list] : [part];
  return Array.isArray(items) ? items.filter(isObject) : [];
}

/** Refuses options that change BPE merging itself. */
function checkModel(model: JsonObject, refuse: Refuse): void {
  if (model.dropout) refuse(`dropout ${describe(model.dropout)}`);
  for (const field of ["continuing_subword_prefix", "end_of_word_suffix"])
    if (model[field]) refuse(`${field} ${describe(model[field])}`);
}

const SPACE = "▁";

/** Whether a SentencePiece tokenizer puts a space before texts; refuses steps that are not SentencePiece's own. */
export function spacePrefix({ normalizer, pre_tokenizer: before, model }: JsonObject, refuse: Refuse): boolean {
  checkModel(model as JsonObject, refuse);
  if ((model as JsonObject).ignore_merges === true) refuse("ignore_merges of a SentencePiece tokenizer");
  let [isPrefixed, isReplaced] = [false, false];
  for (const step of itemsOf(normalizer, "normalizers")) {
    const pattern = isObject(step.pattern) ? step.pattern : {};
    if (step.type === "Prepend" && step.prepend === SPACE && !isReplaced) isPrefixed = true;
    else if (step.type === "Replace" && pattern.String === " " && step.content === SPACE) isReplaced = true;
    else refuse(`the normalizer ${describe(step.type)} ${JSON.stringify(step).slice(0, 80)}`);
  }
  for (const step of itemsOf(before, "pretokenizers")) {
    if (step.type === "Metaspace" && step.replacement === SPACE && step.split === false) {
      if (step.prepend_scheme !== "never" && step.prepend_scheme !== undefined)
        refuse(`Metaspace with prepend_scheme ${describe(step.prepend_scheme)}, which leaves out some spaces`);
      if (step.prepend_scheme === undefined) refuse("Metaspace without prepend_scheme, which leaves out some spaces");
      isReplaced = true;
    } else if (!isReplaced || !isSplitAtSpace(step)) refuse(`the pre-tokenizer ${describe(step.type)} of this file`);
  }
  if (!isReplaced) refuse(`spaces that are no ${SPACE}`);
  return isPrefixed;
}

/** Whether a step splits at spaces: it has no effect after all spaces were replaced. */
function isSplitAtSpace(step: JsonObject): boolean {
  return step.type === "Split" && isObject(step.pattern) && step.pattern.String === " ";
}

/**
 * Checks the merges: SentencePiece merges any two pieces that make a piece, so every such pair must be among them,
 * consecutively for each piece.
 */
export function checkScores(
  merges: readonly [string, string][],
  pieces: ReadonlySet<string>,
  ordinary: Iterable<string>,
  refuse: Refuse,
): void {
  const ways = new Map<string, number>();
  let last: string | null = null;
  for (const [left, right] of merges) {
    const piece = left + right;
    if (piece !== last && ways.has(piece)) refuse(`merges to ${quote(piece)} of several ranks`);
    ways.set(piece, (ways.get(piece) ?? 0) + 1);
    last = piece;
  }
  for (const piece of ordinary) {
    const characters = [...piece];
    let possible = 0;
    for (let cut = 1; cut < characters.length; cut++) {
      const [left, right] = [characters.slice(0, cut).join(""), characters.slice(cut).join("")];
      if (pieces.has(left) && pieces.has(right)) possible++;
    }
    if (possible !== (ways.get(piece) ?? 0))
      refuse(`merges that leave out ways to make ${quote(piece)}, which SentencePiece's scores do not`);
  }
}

/** Matches a case-insensitive group of GPT's contractions. */
const INSENSITIVE = /\(\?i:([^()]+)\)/g;
const ENDINGS = ["'d", "'ll", "'m", "'re", "'s", "'t", "'ve"];

/** A pattern spelled as in pretokenizers.ts. */
function canonical(pattern: string): string {
  return pattern
    .replaceAll("\r", "\\r")
    .replaceAll("\n", "\\n")
    .replace(INSENSITIVE, (text, options: string) =>
      options.split("|").sort().join("|") === ENDINGS.join("|") ? CONTRACTIONS : text,
    );
}

/** Whether merges produce every token from its own characters, so that `ignore_merges` makes no difference. */
function mergesMake(tokens: Iterable<string>, merges: readonly [string, string][]): boolean {
  const ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
  for (const token of tokens) {
    const parts = [...token];
    while (parts.length > 1) {
      let [best, at] = [merges.length, -1];
      for (let i = 1; i < parts.length; i++) {
        const rank = ranks.get(`${parts[i - 1]} ${parts[i]}`) ?? merges.length;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return false;
      parts.splice(at - 1, 2, parts[at - 1]! + parts[at]!);
    }
  }
  return true;
}

/** GGUF's name for the pre-tokenization of a byte-level tokenizer; `ordinary` are the tokens that are not added. */
export function wordsName(
  { normalizer, pre_tokenizer: before, model }: JsonObject,
  merges: readonly [string, string][],
  ordinary: Iterable<string>,
  refuse: Refuse,
): string {
  checkModel(model as JsonObject, refuse);
  const steps = itemsOf(before, "pretokenizers");
  const last = steps.at(-1);
  if (last?.type !== "ByteLevel") refuse(`words that are not cut by ByteLevel at last but by ${describe(last?.type)}`);
  const patterns = steps.flatMap((step, i) => patternsOf(step, i === steps.length - 1, refuse));
  const whole = (model as JsonObject).ignore_merges === true;
  const other = preTokenizerName(patterns, !whole);
  const name = preTokenizerName(patterns, whole) ?? (other && mergesMake(ordinary, merges) ? other : null);
  if (name === null)
    return refuse(
      other === null
        ? `words cut by ${patterns.join(" then ")}, for which there is no name`
        : `ignore_merges ${whole} of words that are cut as those of ${other}`,
    );
  for (const step of itemsOf(normalizer, "normalizers")) {
    // Qwen's tokenizers all have NFC, and llama.cpp omits it for them.
    if (step.type !== "NFC" || name !== "qwen2") refuse(`the normalizer ${describe(step.type)}`);
  }
  return name;
}

function patternsOf(step: JsonObject, isLast: boolean, refuse: Refuse): readonly string[] {
  if (step.type === "ByteLevel") {
    if (!isLast) refuse("a ByteLevel before other pre-tokenizers");
    if (step.add_prefix_space !== false) refuse("add_prefix_space of ByteLevel");
    return step.use_regex === false ? [] : preTokenizerNamed("gpt-2")!.patterns;
  }
  if (step.type === "Digits") return [step.individual_digits === true ? "\\p{N}" : "\\p{N}+"];
  const { Regex } = isObject(step.pattern) ? step.pattern : {};
  if (step.type !== "Split" || typeof Regex !== "string") return refuse(`the pre-tokenizer ${describe(step.type)}`);
  if (step.behavior !== "Isolated" || step.invert === true)
    refuse(`Split with behavior ${describe(step.behavior)}${step.invert === true ? ", inverted" : ""}`);
  return [canonical(Regex)];
}

/** The special token before a text and the one after it, null for none; refuses several. */
export function surroundings(processor: unknown, refuse: Refuse): Record<"before" | "after", number | null> {
  const around: Record<"before" | "after", number | null> = { before: null, after: null };
  for (const part of itemsOf(processor, "processors")) {
    if (part.type === "ByteLevel") continue;
    if (part.type !== "TemplateProcessing") refuse(`the post-processor ${describe(part.type)}`);
    const items = Array.isArray(part.single) ? part.single.filter(isObject) : [];
    const middle = items.findIndex((item) => isObject(item.Sequence));
    const known = isObject(part.special_tokens) ? part.special_tokens : {};
    for (const [i, { SpecialToken: token }] of items.entries()) {
      if (!isObject(token)) continue;
      const place = i < middle ? "before" : "after";
      const entry = known[String(token.id)];
      const ids: readonly unknown[] = isObject(entry) && Array.isArray(entry.ids) ? entry.ids : [];
      if (around[place] !== null || ids.length !== 1 || !Number.isInteger(ids[0]))
        refuse(`other than one token ${place} a text, as ${quote(String(token.id))}`);
      around[place] = ids[0] as number;
    }
  }
  return around;
}

/**
 * Whether white space after an added token is stripped: llama.cpp recognizes Phi-3 by its name and does so for most control
 * tokens.
 */
export function stripsAfter(modelName: string, content: string): boolean {
  return /phi-?3/i.test(modelName) && !["<unk>", "<s>", "<|endoftext|>"].includes(content);
}

/** Refuses flags of added tokens (such as `lstrip`) that GGUF metadata cannot express. */
export function checkAdded(
  added: readonly JsonObject[],
  { normalizer }: JsonObject,
  modelName: string,
  refuse: Refuse,
): void {
  const prepends = itemsOf(normalizer, "normalizers").some(({ type }) => type === "Prepend");
  for (const token of added) {
    const rstrip = stripsAfter(modelName, String(token.content));
    const flags = Object.entries({ single_word: false, lstrip: false, rstrip })
      .filter(([flag, expected]) => (token[flag] ?? false) !== expected)
      .map(([flag]) => `${flag} ${describe(token[flag])}`);
    if (flags.length > 0) refuse(`${flags.join(" and ")} of the added token ${describe(token.content)}`);
    if (token.normalized === true && prepends)
      refuse(`the added token ${describe(token.content)} that is looked for in normalized text`);
  }
}
