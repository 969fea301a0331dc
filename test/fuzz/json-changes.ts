/** Changes of JSON documents: other numbers, types, lengths and depths at random places. */
import type { Random } from "../support/random.ts";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const wildNumbers = [0, 1, -1, 0.5, 3, 255, 1e7, 1e9, 2 ** 31, 2 ** 53, 1e18, 1e300, -1e9];
const wildTexts = ["", "a", "é", "\u0000", "<s>", "null", "(a+)+$", "[", "\\p{L}+|\\s*", "(.*)*\\1", "x".repeat(5000)];

/** The text of a changed document, in which lists within lists, however many, are written out. */
export function jsonText(document: unknown): string {
  const text = JSON.stringify(document) ?? "";
  return text.replace(/"@nested (\d+)@"/g, (_, depth) => "[".repeat(Number(depth)) + "]".repeat(Number(depth)));
}

/** Changes up to `most` places of a copy of `document`; `values` are further ones that fit it. */
export function changeJson(document: unknown, random: Random, values: readonly unknown[] = [], most = 4): unknown {
  const root = { document: structuredClone(document) as Json };
  for (let changes = random.integer(1, most); changes > 0; changes--) {
    const [parent, key] = randomPlace(root, random);
    const container = parent as Record<string, Json>;
    const kind = random.integer(0, 9);
    if (kind === 0 && Array.isArray(parent)) parent.splice(Number(key), 1);
    else if (kind === 0) delete container[key];
    else if (kind === 1) container[key] = Array.from({ length: random.integer(1, 20) }, () => container[key] ?? null);
    else if (kind === 2) container[key] = `@nested ${random.pick([1, 10, 3000, 200_000])}@`;
    else if (kind <= 4 && values.length > 0) container[key] = structuredClone(random.pick(values)) as Json;
    else container[key] = otherValue(container[key] ?? null, random);
  }
  return root.document;
}

/** Walks down at random; large lists are not walked through one by one. */
function randomPlace(root: { document: Json }, random: Random): [Json, string] {
  let parent: Json = root;
  let key = "document";
  for (;;) {
    const value: Json | undefined = (parent as Record<string, Json>)[key];
    if (typeof value !== "object" || value === null || random.next() < 0.15) return [parent, key];
    const keys = Object.keys(value);
    if (keys.length === 0) return [parent, key];
    parent = value;
    key = random.pick(keys);
  }
}

function otherValue(value: Json, random: Random): Json {
  const same = random.next() < 0.6;
  if (same && typeof value === "number") return random.pick([value + 1, value - 1, value * 2, ...wildNumbers]);
  if (same && typeof value === "boolean") return !value;
  if (same && typeof value === "string") return random.pick([...wildTexts, `${value}${value}`, value.slice(1)]);
  return random.pick<Json>([null, true, false, [], {}, random.pick(wildNumbers), random.pick(wildTexts)]);
}
