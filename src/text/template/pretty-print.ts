/** Python's pprint.pformat with its defaults: 80 columns, sorted keys. */
import { isOrdered, sortValues } from "./compare.ts";
import { isFault } from "./faults.ts";
import { chargeText, checkLength, enter, leave } from "./limits.ts";
import { quote, represent } from "./print.ts";
import { splitLines } from "./text-parts.ts";
import { Dict, isText, Tuple, textOf, typeName, type Value } from "./values.ts";

const WIDTH = 80;

export function prettyText(value: Value): string {
  return format(value, 0, 0);
}

/** `indent` is the column that the value begins at, `allowance` what must fit behind it on its last line. */
function format(value: Value, indent: number, allowance: number): string {
  const flat = flatText(value);
  if (flat.length <= WIDTH - indent - allowance) return flat;
  enter();
  let text = flat;
  if (value instanceof Dict && value.size > 0) text = `{${entries(value, indent, allowance + 1)}}`;
  else if (Array.isArray(value)) text = `[${items(value, indent, allowance + 1)}]`;
  else if (value instanceof Tuple && value.items.length > 0) {
    const end = value.items.length === 1 ? ",)" : ")";
    text = `(${items(value.items, indent, allowance + end.length)}${end}`;
  } else if (isText(value)) text = longText(textOf(value), indent, allowance);
  leave();
  checkLength(text.length);
  return text;
}

/** `repr` with the keys of dicts sorted. */
function flatText(value: Value): string {
  enter();
  let text: string;
  if (value instanceof Dict)
    text = `{${sortedEntries(value)
      .map(([key, item]) => `${flatText(key)}: ${flatText(item)}`)
      .join(", ")}}`;
  else if (Array.isArray(value)) text = `[${value.map(flatText).join(", ")}]`;
  else if (value instanceof Tuple)
    text = `(${value.items.map(flatText).join(", ")}${value.items.length === 1 ? ",)" : ")"}`;
  else text = represent(value);
  leave();
  chargeText(text.length);
  return text;
}

/** Entries by key; keys without an order among each other by the name of their type. */
function sortedEntries(dict: Dict): [Value, Value][] {
  const all = [...dict.entries()];
  const keys = all.map(([key]) => key);
  try {
    for (const key of keys) isOrdered("<", key, keys[0]!);
    return sortValues(all as unknown as Value[], (entry) => (entry as Value[])[0]!) as unknown as [Value, Value][];
  } catch (cause) {
    if (!isFault(cause, "TypeError", "UndefinedError")) throw cause;
    return sortValues(all as unknown as Value[], (entry) => typeName((entry as Value[])[0]!)) as unknown as [
      Value,
      Value,
    ][];
  }
}

function entries(dict: Dict, indent: number, allowance: number): string {
  const all = sortedEntries(dict);
  const lines = all.map(([key, item], i) => {
    const name = flatText(key);
    const last = i === all.length - 1;
    return `${name}: ${format(item, indent + 1 + name.length + 2, last ? allowance : 1)}`;
  });
  return lines.join(`,\n${" ".repeat(indent + 1)}`);
}

function items(list: readonly Value[], indent: number, allowance: number): string {
  const lines = list.map((item, i) => format(item, indent + 1, i === list.length - 1 ? allowance : 1));
  return lines.join(`,\n${" ".repeat(indent + 1)}`);
}

/** A text over several lines: by its own lines, and these by words. */
function longText(text: string, indent: number, allowance: number): string {
  const lines = splitLines(text, true);
  const isTop = indent === 0;
  const [start, after] = isTop ? [indent + 1, allowance + 1] : [indent, allowance];
  const chunks: string[] = [];
  lines.forEach((line, i) => {
    const most = WIDTH - start - (i === lines.length - 1 ? after : 0);
    if (quote(line).length <= most) chunks.push(quote(line));
    else for (const chunk of wrapWords(line, WIDTH - start, i === lines.length - 1 ? after : 0)) chunks.push(chunk);
  });
  if (chunks.length === 1) return chunks[0]!;
  const body = chunks.join(`\n${" ".repeat(start)}`);
  return isTop ? `(${body})` : body;
}

function wrapWords(line: string, width: number, allowance: number): string[] {
  const words = line.match(/\S*\s*/g)!.filter((word) => word !== "");
  const chunks: string[] = [];
  let current = "";
  words.forEach((word, j) => {
    const room = j === words.length - 1 ? width - allowance : width;
    chargeText(current.length + word.length);
    if (quote(current + word).length > room) {
      if (current !== "") chunks.push(quote(current));
      current = word;
    } else current += word;
  });
  if (current !== "") chunks.push(quote(current));
  return chunks;
}
