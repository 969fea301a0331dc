/** Finds added tokens in a text: some before the text is normalized, others, in normalized form, after that. */
import type { AddedToken } from "../added-tokens.ts";
import { whiteSpace, wordCharacter } from "./character-set.ts";
import type { Normalizer } from "./normalizers.ts";
import { Trie } from "./pair-table.ts";
import { cut, type Span, wholeSpan } from "./span.ts";
import type { Work } from "./work-limit.ts";

/** A part of a text: a span without added tokens, or the id of one. */
export type Part = Span | number;

/** What prevents added tokens from being found. */
export interface Protection {
  /** Whether a token is never found and stays text. */
  readonly skips: (id: number) => boolean;
  /** A character in the text that no token may span, and that is not part of the text; null for none. */
  readonly mark: string | null;
}

export class AddedVocabulary {
  readonly #tokens: readonly AddedToken[];
  readonly #raw: Trie;
  readonly #normalized: Trie;
  readonly #normalizer: Normalizer | null;
  /** Normalized form by id, for tokens that are searched for in normalized text. */
  readonly normalizedForms: ReadonlyMap<number, string>;

  constructor(tokens: readonly AddedToken[], normalizer: Normalizer | null, work: Work) {
    this.#tokens = tokens;
    this.#normalizer = normalizer;
    const raw = new Map<string, number>();
    const normalized = new Map<string, number>();
    const forms = new Map<number, string>();
    for (const [place, { id, content, normalized: isNormalized }] of tokens.entries()) {
      if (!isNormalized) {
        raw.set(content, place);
        continue;
      }
      const form = normalizer ? normalizer(wholeSpan(content), work).text : content;
      forms.set(id, form);
      if (!normalized.has(form)) normalized.set(form, place);
    }
    for (const forms of [raw, normalized]) forms.delete("");
    this.#raw = new Trie(raw);
    this.#normalized = new Trie(normalized);
    this.normalizedForms = forms;
  }

  /** Splits a text into normalized text and ids of added tokens. */
  split(text: string, protection: Protection, work: Work): Part[] {
    return this.#find(wholeSpan(text), this.#raw, protection, null, work).flatMap((part) => {
      if (typeof part === "number") return [part];
      const { mark } = protection;
      const hasMarks = mark !== null && part.text.includes(mark);
      const bare = hasMarks ? withoutMarks(part, mark) : part;
      const normalized = this.#normalize(bare, work);
      const breaks = hasMarks ? this.#breaks(part, mark, normalized.text, work) : null;
      return this.#find(normalized, this.#normalized, protection, breaks, work);
    });
  }

  normalize(text: string, work: Work): string {
    return this.#normalize(wholeSpan(text), work).text;
  }

  #normalize(span: Span, work: Work): Span {
    return this.#normalizer ? this.#normalizer(span, work) : span;
  }

  /**
   * Offsets in the normalized text that no token may span: those of the marks, or all if the marks change the normalized text.
   */
  #breaks(part: Span, mark: string, normalized: string, work: Work): (place: number) => boolean {
    const marked = this.#normalize(part, work).text;
    if (marked.replaceAll(mark, "") !== normalized) return () => true;
    const places = new Set<number>();
    let count = 0;
    for (let at = marked.indexOf(mark); at >= 0; at = marked.indexOf(mark, at + 1)) places.add(at - count++);
    return (place) => places.has(place);
  }

  #find(
    span: Span,
    trie: Trie,
    { skips }: Protection,
    isBreak: ((place: number) => boolean) | null,
    work: Work,
  ): Part[] {
    const { text } = span;
    const parts: Part[] = [];
    let done = 0;
    let steps = 0;
    for (let at = 0; at < text.length; ) {
      const { place, end } = longestAt(text, at, trie, isBreak);
      steps += Math.max(0, end - at);
      if (steps > 4096) {
        work.add(steps);
        steps = 0;
      }
      if (place < 0) {
        at++;
        continue;
      }
      const token = this.#tokens[place]!;
      const from = at;
      at = end;
      if (skips(token.id) || (token.single_word && !standsAlone(text, from, end))) continue;
      let start = from;
      let stop = end;
      if (token.lstrip) while (start > done && whiteSpace.has(text.charCodeAt(start - 1))) start--;
      if (token.rstrip) while (stop < text.length && whiteSpace.has(text.charCodeAt(stop))) stop++;
      if (done < start) parts.push(cut(span, done, start));
      // The token is empty if it was white space that another token has taken.
      if (start < stop) parts.push(token.id);
      done = stop;
    }
    if (done < text.length) parts.push(cut(span, done, text.length));
    return parts;
  }
}

function withoutMarks(span: Span, mark: string): Span {
  const fromStart = span.text.slice(0, span.fromStart).replaceAll(mark, "").length;
  return { ...span, text: span.text.replaceAll(mark, ""), fromStart };
}

/** The longest token that begins at an offset, as its index and end; index -1 for none, with the end of what was examined. */
function longestAt(
  text: string,
  start: number,
  trie: Trie,
  isBreak: ((place: number) => boolean) | null,
): { readonly place: number; readonly end: number } {
  let node = trie.child(0, text.charCodeAt(start));
  if (node < 0) return NOTHING;
  let place = -1;
  let end = start;
  let at = start + 1;
  for (;;) {
    if (trie.value(node) >= 0) {
      place = trie.value(node);
      end = at;
    }
    if (at === text.length || isBreak?.(at)) break;
    node = trie.child(node, text.charCodeAt(at));
    if (node < 0) break;
    at++;
  }
  return { place, end: place < 0 ? at : end };
}

const NOTHING = { place: -1, end: 0 };

/** Whether no word character stands next to a part of a text. */
function standsAlone(text: string, start: number, end: number): boolean {
  const before = start - (/[\uDC00-\uDFFF]/.test(text[start - 1] ?? "") ? 2 : 1);
  const isWord = (at: number) => at >= 0 && at < text.length && wordCharacter.has(text.codePointAt(at)!);
  return !isWord(before) && !isWord(end);
}
