/** A span of a text as it passes through a tokenizer. */

export interface Span {
  readonly text: string;
  /**
   * Number of leading UTF-16 units that come from the first character of the whole text. Metaspace's scheme "first" needs to
   * know whether a span begins there.
   */
  readonly fromStart: number;
  /** Whether the span, when it was cut, began with the first character of the whole text. */
  readonly isFirst: boolean;
}

export function wholeSpan(text: string): Span {
  return { text, fromStart: text === "" ? 0 : String.fromCodePoint(text.codePointAt(0)!).length, isFirst: true };
}

/** The span from `start` to `end`. */
export function cut(span: Span, start: number, end: number): Span {
  const fromStart = Math.max(0, Math.min(span.fromStart - start, end - start));
  return { text: span.text.slice(start, end), fromStart, isFirst: fromStart > 0 };
}

/** A span with its text changed character by character. */
export function changed(span: Span, change: (text: string) => string): Span {
  const fromStart = span.fromStart === 0 ? 0 : change(span.text.slice(0, span.fromStart)).length;
  const text = change(span.text);
  return { ...span, text, fromStart: Math.min(fromStart, text.length) };
}

/** A span with a text put before it. */
export function prepended(span: Span, text: string): Span {
  if (span.text === "") return span;
  return { ...span, text: text + span.text, fromStart: span.fromStart === 0 ? 0 : text.length + span.fromStart };
}

/** A span with every match replaced; `matches` alternates beginnings and ends. */
export function replaced(span: Span, matches: readonly number[], content: string): Span {
  if (matches.length === 0) return span;
  const pieces: string[] = [];
  let length = 0;
  let fromStart = 0;
  let done = 0;
  for (let i = 0; i < matches.length; i += 2) {
    const [start, end] = [matches[i]!, matches[i + 1]!];
    pieces.push(span.text.slice(done, start), content);
    length += start - done;
    const isUnbroken = fromStart === length - (start - done);
    if (isUnbroken) fromStart += Math.max(0, Math.min(span.fromStart, start) - done);
    length += content.length;
    if (end <= span.fromStart && fromStart === length - content.length) fromStart = length;
    done = end;
  }
  pieces.push(span.text.slice(done));
  if (fromStart === length) fromStart += Math.max(0, span.fromStart - done);
  return { ...span, text: pieces.join(""), fromStart };
}
