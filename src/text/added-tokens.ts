/** Finds the text of added tokens (control tokens and the like) in a text; knows nothing of the other tokens. */

interface TokenText {
  readonly id: number;
  readonly content: string;
}

export class AddedTokenMatcher {
  /** First character (UTF-16 unit) to the tokens that begin with it, longest first. */
  readonly #byFirst = new Map<string, TokenText[]>();
  readonly #maxLength: number;

  constructor(tokens: readonly TokenText[]) {
    for (const token of tokens) {
      const first = token.content[0];
      if (first === undefined) continue;
      const siblings = this.#byFirst.get(first);
      if (siblings) siblings.push(token);
      else this.#byFirst.set(first, [token]);
    }
    for (const siblings of this.#byFirst.values()) siblings.sort((a, b) => b.content.length - a.content.length);
    this.#maxLength = Math.max(0, ...tokens.map((token) => token.content.length));
  }

  /** The text cut at added tokens: strings between them and the tokens' ids, leftmost and longest first. */
  split(text: string): (string | number)[] {
    const parts: (string | number)[] = [];
    let start = 0;
    for (let i = 0; i < text.length; ) {
      const token = this.#byFirst.get(text[i]!)?.find(({ content }) => text.startsWith(content, i));
      if (!token) {
        i++;
        continue;
      }
      if (i > start) parts.push(text.slice(start, i));
      parts.push(token.id);
      i += token.content.length;
      start = i;
    }
    if (start < text.length) parts.push(text.slice(start));
    return parts;
  }

  /**
   * Where, in ascending order, a token that `counts` begins, overlapping ones included. A beginning that the end of
   * the text (white space apart) cuts off counts, because what follows the text might complete it.
   */
  starts(text: string, counts: (id: number) => boolean): number[] {
    const end = text.trimEnd().length;
    const starts: number[] = [];
    for (let i = 0; i < text.length; i++) {
      const siblings = this.#byFirst.get(text[i]!);
      if (!siblings) continue;
      const tail = end - i < this.#maxLength && end > i ? text.slice(i, end) : null;
      const begins = ({ id, content }: TokenText) =>
        counts(id) && (text.startsWith(content, i) || (tail !== null && content.startsWith(tail)));
      if (siblings.some(begins)) starts.push(i);
    }
    return starts;
  }
}
