/** Compiles arrays of JSON schemas to grammars. */
import { InvalidArgumentError } from "../../errors.ts";
import { type Node, optional, repeat, rule, sequence, text } from "./grammar.ts";
import { SEPARATOR } from "./json-text.ts";
import { countOf, refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";

/** Most items that are written out one by one. */
const ITEMS_MAX = 200;

/** Grammar of an array; null where no array is valid. */
export function arrayOf(keywords: Schema, at: string, scope: SchemaScope): Node | null {
  const { firsts, rest } = itemsOf(keywords, at);
  const min = countOf(keywords, "minItems", at) ?? 0;
  let max = countOf(keywords, "maxItems", at) ?? Number.POSITIVE_INFINITY;
  if (keywords.uniqueItems === true && max > 1) {
    if (min > 1) throw refused(`${at}/uniqueItems`, "this keyword");
    // An array with at most one item is unique.
    throw refused(`${at}/uniqueItems`, "this keyword, but for at most one item,");
  }
  const heads: Node[] = [];
  for (const [index, schema] of firsts.entries()) {
    const node = scope.node(schema, `${at}/prefixItems/${index}`);
    if (node === null) {
      max = Math.min(max, index);
      break;
    }
    heads.push(scope.define(node));
  }
  const tail = max > heads.length ? scope.node(rest, `${at}/items`) : null;
  if (tail === null) max = Math.min(max, heads.length);
  if (min > max) return null;
  if (min > ITEMS_MAX || (max > ITEMS_MAX && max !== Number.POSITIVE_INFINITY))
    throw refused(at, `a number of items above ${ITEMS_MAX}`);
  return scope.define(
    sequence(text("["), rule("ws"), ...itemsBetween(heads, tail && scope.define(tail), min, max), text("]")),
  );
}

/** Items with separators between them, and white space at the end. */
function itemsBetween(heads: readonly Node[], tail: Node | null, min: number, max: number): Node[] {
  if (max === 0) return [];
  const end = rule("ws");
  const item = (index: number) => heads[index] ?? tail!;
  const headCount = Math.min(heads.length, max);
  let node: Node = sequence();
  if (tail && max > headCount) {
    const [least, most] = [Math.max(0, min - headCount), max - headCount];
    // Without heads, the first item has no comma before it.
    if (headCount > 0) node = repeat(sequence(SEPARATOR, tail), least, most);
    else {
      const all = sequence(tail, repeat(sequence(SEPARATOR, tail), Math.max(0, least - 1), most - 1), end);
      return [least === 0 ? optional(all) : all];
    }
  }
  for (let index = headCount - 1; index > 0; index--) {
    const more = sequence(SEPARATOR, item(index), node);
    node = index >= min ? optional(more) : more;
  }
  const all = sequence(item(0), node, end);
  return [min === 0 ? optional(all) : all];
}

/** Schemas of the first items and of the rest, by today's keywords or those of earlier drafts. */
function itemsOf(
  { prefixItems, items, additionalItems }: Schema,
  at: string,
): { firsts: readonly unknown[]; rest: unknown } {
  if (Array.isArray(items)) {
    if (prefixItems !== undefined) throw refused(at, "a list of items beside prefixItems");
    return { firsts: items, rest: additionalItems ?? true };
  }
  if (prefixItems !== undefined && !Array.isArray(prefixItems))
    throw new InvalidArgumentError(`schema ${at}/prefixItems: expected a list but found ${typeof prefixItems}`);
  return { firsts: prefixItems ?? [], rest: items ?? true };
}
