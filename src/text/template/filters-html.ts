/** Jinja's filters of HTML and URLs. */
import { isIterable } from "./compare.ts";
import { escapeHtml } from "./escape-html.ts";
import { fault, valueError } from "./faults.ts";
import { percentEncode } from "./filters-text.ts";
import { charge, chargeText, checkLength } from "./limits.ts";
import { quote, toText } from "./print.ts";
import { findAll } from "./search-text.ts";
import { type Signature, signature } from "./signature.ts";
import { splitWords } from "./text-parts.ts";
import { WHITE_SPACE } from "./unicode.ts";
import { asIndex, Dict, isText, isTrue, iterate, Markup, typeName, Undefined, type Value } from "./values.ts";

function escaped(value: Value): Markup {
  return value instanceof Markup ? value : new Markup(escapeHtml(toText(value)));
}

function urlEncode(value: Value): string {
  if (isText(value) || !isIterable(value)) return percentEncode(value, false);
  if (value instanceof Undefined) return "";
  const pairs = value instanceof Dict ? value.entries() : iterate(value);
  const parts: string[] = [];
  let length = 0;
  for (const pair of pairs) {
    charge();
    const items = Array.isArray(pair) ? pair : [...iterate(pair)];
    if (items.length !== 2) valueError(`${items.length > 2 ? "too many" : "not enough"} values to unpack (expected 2)`);
    parts.push(`${percentEncode(items[0]!, true)}=${percentEncode(items[1]!, true)}`);
    length += parts.at(-1)!.length + 1;
    checkLength(length);
  }
  return parts.join("&");
}

function xmlAttributes(value: Value, autospace: Value = true): string {
  if (value instanceof Undefined) value.fail();
  if (!(value instanceof Dict)) fault("AttributeError", `'${typeName(value)}' object has no attribute 'items'`);
  const parts: string[] = [];
  for (const [key, item] of value.entries()) {
    charge();
    if (item === null || item instanceof Undefined) continue;
    const name = toText(key);
    if (/[ \t\n\r\f\v/>=]/.test(name)) valueError(`Invalid character in attribute name: ${quote(name)}`);
    parts.push(`${escaped(key).text}="${escaped(item).text}"`);
    checkLength(name.length + parts.at(-1)!.length);
  }
  const text = parts.join(" ");
  chargeText(text.length);
  return isTrue(autospace) && text !== "" ? ` ${text}` : text;
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\xa0" };

/** Without tags and comments, with single spaces. Of entities by name, those of XML and nbsp are read. */
function stripTags(value: Value): string {
  const text = toText(value);
  chargeText(text.length);
  let rest = "";
  let at = 0;
  for (let start = text.indexOf("<"); start !== -1; start = text.indexOf("<", at)) {
    const isComment = text.startsWith("<!--", start);
    const end = isComment ? text.indexOf("-->", start + 4) : text.indexOf(">", start);
    if (end === -1) break;
    charge();
    rest += text.slice(at, start);
    at = end + (isComment ? 3 : 1);
  }
  const words = splitWords(rest + text.slice(at), Number.POSITIVE_INFINITY).join(" ");
  return words.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,5}));/g, (all, decimal, hex, name) => {
    if (name !== undefined) return ENTITIES[name] ?? all;
    const code = Number.parseInt(decimal ?? hex, decimal ? 10 : 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
  });
}

const W = "[\\p{L}\\p{N}_]";
const HTTP = new RegExp(
  `^(?:(?:https?://|www\\.)(?:(?:[\\p{L}\\p{N}_%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\p{L}\\p{N}_%]{2,59})` +
    "|(?:[\\p{L}\\p{N}_%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)" +
    "|https?://(?:\\p{Nd}{1,3}(?:\\.\\p{Nd}{1,3}){3}|\\[(?:[\\p{Nd}a-f]{0,4}:){2}(?:[\\p{Nd}a-f]{0,4}:?){1,6}\\]))" +
    `(?::\\p{Nd}{1,5})?(?:[/?#][^${WHITE_SPACE}]*)?\\n?$`,
  "iu",
);
const EMAIL = new RegExp(`^[^${WHITE_SPACE}]+@${W}[\\p{L}\\p{N}_.-]*\\.${W}+\\n?$`, "u");
const SCHEME = /^[\p{L}\p{N}_.+-]{2,}:\/{0,2}$/u;
const OPENING = [
  ["(", ")"],
  ["<", ">"],
  ["&lt;", "&gt;"],
] as const;

const count = (text: string, part: string) => [...findAll(text, part)].length;

interface LinkOptions {
  readonly limit: number | null;
  readonly attributes: string;
  readonly schemes: readonly string[];
}

/** One word with its link, if it is an address. */
function linkWord(word: string, { limit, attributes, schemes }: LinkOptions): string {
  // Both ends are looked at by characters: brackets and punctuation are not part of an address.
  let middle = word;
  const head = /^(?:[(<]|&lt;)+/.exec(middle)?.[0] ?? "";
  middle = middle.slice(head.length);
  let end = middle.length;
  for (let length = tailLength(middle, end); length > 0; length = tailLength(middle, end)) end -= length;
  let tail = middle.slice(end);
  middle = middle.slice(0, end);
  for (const [open, close] of OPENING) {
    const opened = count(middle, open);
    if (opened <= count(middle, close)) continue;
    for (let i = Math.min(opened, count(tail, close)); i > 0; i--) {
      const at = tail.indexOf(close) + close.length;
      middle += tail.slice(0, at);
      tail = tail.slice(at);
    }
  }
  const trimmed = limit !== null && [...middle].length > limit ? `${[...middle].slice(0, limit).join("")}...` : middle;
  if (HTTP.test(middle)) {
    const address = /^https?:\/\//.test(middle) ? middle : `https://${middle}`;
    middle = `<a href="${address}"${attributes}>${trimmed}</a>`;
  } else if (middle.startsWith("mailto:") && EMAIL.test(middle.slice(7)))
    middle = `<a href="${middle}">${middle.slice(7)}</a>`;
  else if (!/^(?:www\.|@)|:/.test(middle) && EMAIL.test(middle)) middle = `<a href="mailto:${middle}">${middle}</a>`;
  else
    for (const scheme of schemes)
      if (middle !== scheme && middle.startsWith(scheme)) middle = `<a href="${middle}"${attributes}>${middle}</a>`;
  return head + middle + tail;
}

function tailLength(text: string, end: number): number {
  if (end > 0 && ")>.,\n".includes(text[end - 1]!)) return 1;
  return text.endsWith("&gt;", end) ? 4 : 0;
}

function urlize(
  value: Value,
  limit: Value = null,
  nofollow: Value = false,
  target: Value = null,
  rel: Value = null,
  schemes: Value = null,
): string {
  const parts = new Set(splitWords(rel === null ? "" : toText(rel), Number.POSITIVE_INFINITY));
  if (isTrue(nofollow)) parts.add("nofollow");
  parts.add("noopener");
  const relation = [...parts].sort().join(" ");
  const targetText = target === null ? "" : ` target="${escapeHtml(toText(target))}"`;
  const extra = schemes === null ? [] : Array.from(iterate(schemes), toText);
  for (const scheme of extra)
    if (!SCHEME.test(scheme)) fault("FilterArgumentError", `${quote(scheme)} is not a valid URI scheme prefix.`);
  const options = {
    limit: limit === null ? null : asIndex(limit),
    attributes: ` rel="${escapeHtml(relation)}"${targetText}`,
    schemes: extra,
  };
  const words = escaped(value).text.split(new RegExp(`([${WHITE_SPACE}]+)`));
  let length = 0;
  const linked = words.map((word, i) => {
    // The expressions for addresses look back over a word's dots and at-signs.
    chargeText(word.length * 16 * (1 + (word.match(/[@.]/g)?.length ?? 0)));
    const result = i % 2 === 0 ? linkWord(word, options) : word;
    length += result.length;
    checkLength(length);
    return result;
  });
  return linked.join("");
}

export const HTML_FILTERS: Readonly<Record<string, Signature>> = {
  e: signature("s", escaped),
  escape: signature("s", escaped),
  forceescape: signature("value", (value: Value) => new Markup(escapeHtml(toText(value)))),
  safe: signature("value", (value: Value) => (value instanceof Markup ? value : new Markup(toText(value)))),
  striptags: signature("value", stripTags),
  urlencode: signature("value", urlEncode),
  urlize: signature("value trim_url_limit? nofollow? target? rel? extra_schemes?", urlize),
  xmlattr: signature("d autospace?", xmlAttributes),
};
