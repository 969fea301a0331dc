/** Python's textwrap.wrap, as the wordwrap filter uses it: tabs and line ends stay as they are. */
import { valueError } from "./faults.ts";
import { charge, chargeText } from "./limits.ts";
import { WHITE_SPACE } from "./unicode.ts";
import { codePointLength, hasSurrogates } from "./values.ts";

export interface WrapOptions {
  readonly width: number;
  readonly breakLongWords: boolean;
  readonly breakOnHyphens: boolean;
}

const SPACES = "[\\t\\n\\v\\f\\r ]";
const WORD = "[\\p{L}\\p{N}_]";
const LETTER = "[\\p{L}\\p{Nl}\\p{No}_]";
const PUNCTUATED = `(?<=[\\p{L}\\p{N}_!"'&.,?])`;
const PARTS = new RegExp(
  `(${SPACES}+|${PUNCTUATED}-{2,}(?=${WORD})|[^\\t\\n\\v\\f\\r ]+?(?:-(?:(?<=${LETTER}{2}-)|(?<=${LETTER}-${LETTER}-))` +
    `(?=${LETTER}-?${LETTER})|(?=${SPACES}|$)|${PUNCTUATED}(?=-{2,}${WORD})))`,
  "u",
);
const SIMPLE_PARTS = new RegExp(`(${SPACES}+)`);
const BLANK = new RegExp(`^[${WHITE_SPACE}]*$`);
const isBlank = (part: string) => BLANK.test(part);

export function wrapText(text: string, options: WrapOptions): string[] {
  const { width } = options;
  if (width <= 0) valueError(`invalid width ${width} (must be > 0)`);
  chargeText(text.length);
  // Looking for the end of a run of hyphens is repeated at each of them.
  for (const run of text.match(/-{32,}/g) ?? []) charge(run.length ** 2 / 32);
  const parts = text.split(options.breakOnHyphens ? PARTS : SIMPLE_PARTS).filter((part) => part !== "");
  charge(parts.length);
  return fill(parts.reverse(), options);
}

/** Lines of parts that come last first. */
function fill(parts: string[], options: WrapOptions): string[] {
  const lines: string[] = [];
  while (parts.length > 0) {
    const line: string[] = [];
    let length = 0;
    if (lines.length > 0 && isBlank(parts.at(-1)!)) parts.pop();
    for (let part = parts.at(-1); part !== undefined; part = parts.at(-1)) {
      charge();
      const own = codePointLength(part);
      if (length + own > options.width) break;
      line.push(parts.pop()!);
      length += own;
    }
    if (parts.length > 0 && codePointLength(parts.at(-1)!) > options.width) breakPart(parts, line, length, options);
    if (line.length > 0 && isBlank(line.at(-1)!)) line.pop();
    if (line.length > 0) lines.push(line.join(""));
  }
  return lines;
}

/** Puts what fits of a part longer than a line into the line, or all of it where long words stay whole. */
function breakPart(parts: string[], line: string[], length: number, options: WrapOptions): void {
  const part = parts.pop()!;
  if (!options.breakLongWords) {
    if (line.length === 0) line.push(part);
    else parts.push(part);
    return;
  }
  const room = options.width - length;
  const characters = hasSurrogates(part) ? Array.from(part) : part;
  let end = room;
  if (options.breakOnHyphens && codePointLength(part) > room) {
    const hyphen = characters.lastIndexOf("-", room - 1);
    if (hyphen > 0 && [...characters.slice(0, hyphen)].some((c) => c !== "-")) end = hyphen + 1;
  }
  const join = (piece: string | string[]) => (typeof piece === "string" ? piece : piece.join(""));
  chargeText(part.length);
  line.push(join(characters.slice(0, end)));
  parts.push(join(characters.slice(end)));
}
