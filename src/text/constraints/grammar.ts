/** Grammars as data: compiled from JSON schemas, regular expressions and EBNF, and written as text for the mask engine. */
import { InvalidArgumentError } from "../../errors.ts";
import { complement, intersection, normalized, type Range } from "./code-points.ts";
import type { State } from "./states.ts";

/** Tree of a grammar, with further kinds of leaves. */
export type Tree<Leaf> =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "class"; readonly ranges: readonly Range[] }
  | { readonly kind: "sequence"; readonly parts: readonly Tree<Leaf>[] }
  | { readonly kind: "choice"; readonly options: readonly Tree<Leaf>[] }
  | { readonly kind: "repeat"; readonly part: Tree<Leaf>; readonly min: number; readonly max: number }
  | Leaf;

interface Rule {
  readonly kind: "rule";
  readonly name: string;
}

/** A leaf that is followed by states of its own. */
export interface Followed {
  readonly kind: "followed";
  readonly state: State;
}

/** A part that costs the engine too much, with a looser one for it: `superset` accepts all that `exact` accepts, and more. */
interface Relaxed {
  readonly kind: "relaxed";
  readonly exact: Node | Followed;
  readonly superset: Node;
}

export type Node = Tree<Rule | Relaxed>;

/** Rules by name; `root` is the start rule. */
export type Grammar = ReadonlyMap<string, Node>;

/** A tree without further kinds of leaves. */
type Plain = Tree<never>;

export const text = (text: string): Plain => ({ kind: "text", text });
export const sequence = <L = never>(...parts: Tree<L>[]): Tree<L> =>
  parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
export const choice = <L = never>(options: readonly Tree<L>[]): Tree<L> =>
  options.length === 1 ? options[0]! : { kind: "choice", options };
export const repeat = <L = never>(part: Tree<L>, min: number, max = Number.POSITIVE_INFINITY): Tree<L> => ({
  ...{ kind: "repeat", part, min, max },
});
export const optional = <L = never>(part: Tree<L>): Tree<L> => repeat(part, 0, 1);
export const rule = (name: string): Node => ({ kind: "rule", name });
export const oneOf = (ranges: readonly Range[]): Plain => ({ kind: "class", ranges: normalized(ranges) });
export const followed = (state: State): Followed => ({ kind: "followed", state });
export const relaxed = (exact: Node | Followed, superset: Node): Node => ({ kind: "relaxed", exact, superset });
/** A class of ASCII characters. */
export const anyOf = (characters: string): Plain =>
  oneOf([...characters].map((character) => [character.codePointAt(0)!, character.codePointAt(0)!] as const));
export const EMPTY: Plain = { kind: "sequence", parts: [] };

/** Most nodes of a grammar: the engine analyses every state before the first token. */
const NODES_MAX = 20_000;
/** Most nodes in the copies that unrolled repetitions make. */
const COPIED_MAX = 1_500;
const DEPTH_MAX = 400;
/** Most repetitions of variable length: the engine's time to compile them grows at least quadratically. */
const LOOPS_MAX = 200;

/**
 * Whether a repetition's text may be ambiguous with its neighbours'; those of JSON's members and items begin with a separator.
 */
function isOpen(node: Node, isJson: boolean): boolean {
  if (node.kind !== "repeat" || node.max === node.min || node.max === 1) return false;
  const isOfRules = node.part.kind === "sequence" && node.part.parts.some(({ kind }) => kind === "rule");
  return !(isJson && isOfRules);
}

/** Checks a grammar. InvalidArgumentError for one that is too large, names an unknown rule, or is left-recursive. */
export function checkGrammar(grammar: Grammar, what: string): void {
  let nodes = 0;
  let copied = 0;
  let loops = 0;
  const isJson = what === "schema" || what === "tools";
  const fail = (problem: string): never => {
    throw new InvalidArgumentError(`${what}: ${problem}`);
  };
  const count = (node: Node, times: number, depth: number): void => {
    nodes += times;
    if (times > 1) copied += times;
    if (isOpen(node, isJson)) loops++;
    if (loops > LOOPS_MAX) fail(`expected at most ${LOOPS_MAX} repetitions of different lengths`);
    if (nodes > NODES_MAX || copied > COPIED_MAX)
      fail("expected a grammar of less size: repetitions in repetitions and many alternatives cost too much");
    if (depth > DEPTH_MAX) fail(`expected at most ${DEPTH_MAX} levels`);
    if (node.kind === "class" && node.ranges.length === 0) fail("expected classes with a character");
    if (node.kind === "rule" && !grammar.has(node.name)) fail(`rule ${node.name} is not defined`);
    const within = node.kind === "repeat" ? times * Math.max(1, countsTold(node).copies) : times;
    for (const part of partsOf(node)) count(part, within, depth + 1);
  };
  for (const node of grammar.values()) count(node, 1, 0);
  const looping = leftRecursive(grammar);
  if (looping !== null) fail(`rule ${looping} begins with itself`);
}

/** Repetitions longer than this have any length for the engine, to which each iteration costs as much as a rule. */
const COPIES_MAX = 8;

/** The counts of a repetition that the engine gets, and the copies it unrolls to. */
function countsTold({ min, max }: { min: number; max: number }): { min: number; max: number; copies: number } {
  const isLong = max === Number.POSITIVE_INFINITY ? min > COPIES_MAX : max > COPIES_MAX;
  if (isLong) return { min: Math.min(min, 1), max: Number.POSITIVE_INFINITY, copies: 1 };
  return { min, max, copies: max === Number.POSITIVE_INFINITY ? min + 1 : max };
}

export function partsOf(node: Node): readonly Node[] {
  if (node.kind === "sequence") return node.parts;
  if (node.kind === "choice") return node.options;
  if (node.kind === "relaxed") return node.exact.kind === "followed" ? [node.superset] : [node.exact, node.superset];
  return node.kind === "repeat" ? [node.part] : [];
}

/** Names of rules that match the empty text. */
function emptyRules(grammar: Grammar): Set<string> {
  const empty = new Set<string>();
  for (let before = -1; before !== empty.size; ) {
    before = empty.size;
    for (const [name, node] of grammar) if (canBeEmpty(node, empty)) empty.add(name);
  }
  return empty;
}

function canBeEmpty(node: Node, empty: ReadonlySet<string>): boolean {
  if (node.kind === "text") return node.text === "";
  if (node.kind === "class") return false;
  if (node.kind === "rule") return empty.has(node.name);
  if (node.kind === "relaxed") return partsOf(node).some((part) => canBeEmpty(part, empty));
  if (node.kind === "repeat") return node.min === 0 || canBeEmpty(node.part, empty);
  if (node.kind === "choice") return node.options.some((option) => canBeEmpty(option, empty));
  return node.parts.every((part) => canBeEmpty(part, empty));
}

/** Names of rules that match some finite text; others recurse without end, or have no alternative. */
export function endingRules(grammar: Grammar): Set<string> {
  const ending = new Set<string>();
  // Rules stand before those that they call, so the reverse order settles most in one pass.
  const rules = [...grammar].reverse();
  for (let before = -1; before !== ending.size; ) {
    before = ending.size;
    for (const [name, node] of rules) if (!ending.has(name) && canEnd(node, ending)) ending.add(name);
  }
  return ending;
}

function canEnd(node: Node, ending: ReadonlySet<string>): boolean {
  if (node.kind === "rule") return ending.has(node.name);
  if (node.kind === "class") return node.ranges.length > 0;
  if (node.kind === "choice") return node.options.some((option) => canEnd(option, ending));
  return (node.kind === "repeat" && node.min === 0) || partsOf(node).every((part) => canEnd(part, ending));
}

/** A left-recursive rule; null where there is none. */
function leftRecursive(grammar: Grammar): string | null {
  const empty = emptyRules(grammar);
  const firsts = (node: Node): string[] => {
    if (node.kind === "rule") return [node.name];
    if (node.kind !== "sequence") return partsOf(node).flatMap(firsts);
    const end = node.parts.findIndex((part) => !canBeEmpty(part, empty));
    return node.parts.slice(0, end < 0 ? node.parts.length : end + 1).flatMap(firsts);
  };
  const begins = new Map([...grammar].map(([name, node]) => [name, firsts(node)]));
  const done = new Set<string>();
  for (const start of begins.keys()) {
    if (done.has(start)) continue;
    const path = [{ name: start, next: 0 }];
    const onPath = new Set([start]);
    while (path.length > 0) {
      const top = path.at(-1)!;
      const name = begins.get(top.name)![top.next++];
      if (name === undefined) {
        done.add(top.name);
        onPath.delete(top.name);
        path.pop();
      } else if (onPath.has(name)) return name;
      else if (!done.has(name) && begins.has(name)) {
        onPath.add(name);
        path.push({ name, next: 0 });
      }
    }
  }
  return null;
}

/** Lookahead after strings in JSON: with it, the engine can precompute more tokens. */
const BEHIND_STRINGS = " (= [ \\n\\t]* [,}\\]:])";

/** Writes a grammar in the engine's EBNF, with numbered rules. It accepts all texts of the grammar, and some similar ones. */
export function writeGrammar(grammar: Grammar): string {
  const isLoose = [...grammar.values()].reduce((sum, node) => sum + openCopies(node), 0) > OPEN_COPIES_MAX;
  const names = new Map([...grammar.keys()].map((name, index) => [name, name === "root" ? "root" : `r${index}`]));
  const ahead = (name: string) => (name.endsWith("stringRest") ? BEHIND_STRINGS : "");
  return [...grammar]
    .map(([name, node]) => `${names.get(name)} ::= ${written(node, names, isLoose)}${ahead(name)}\n`)
    .join("");
}

/** Most copies that variable repetitions may unroll to; with more, one text can be read in too many ways. */
const OPEN_COPIES_MAX = 64;

function openCopies(node: Node): number {
  const own = node.kind === "repeat" && node.min !== node.max ? countsTold(node).copies : 0;
  return partsOf(node).reduce((sum, part) => sum + openCopies(part), own);
}

/** Characters that JSON escape sequences consist of. */
const ESCAPES: readonly Range[] = [
  [0x22, 0x22],
  [0x2f, 0x39],
  [0x41, 0x5a],
  [0x5c, 0x5c],
  [0x61, 0x7a],
];

/** Characters in a node's texts; null for nodes with rules, except the rule of escapes. */
function charactersOf(node: Node): Range[] | null {
  if (node.kind === "rule" && node.name === "escaped") return [...ESCAPES];
  if (node.kind === "rule" || node.kind === "relaxed") return null;
  if (node.kind === "class") return [...node.ranges];
  if (node.kind === "text") return [...node.text].map((one) => [one.codePointAt(0)!, one.codePointAt(0)!]);
  const parts = partsOf(node).map(charactersOf);
  return parts.includes(null) ? null : normalized(parts.flatMap((ranges) => ranges!));
}

const isLoop = (node: Node): boolean => node.kind === "repeat" && node.max === Number.POSITIVE_INFINITY;
const hasLoop = (node: Node): boolean => isLoop(node) || partsOf(node).some(hasLoop);

/**
 * Merges adjacent loops to one loop over all their characters, which accepts more: a text can be divided between them in many
 * ways.
 */
function joined(loops: readonly Node[]): Node | null {
  const ranges = charactersOf({ kind: "sequence", parts: loops });
  const min = loops.some((loop) => loop.kind === "repeat" && loop.min > 0) ? 1 : 0;
  return ranges && ranges.length > 0
    ? { kind: "repeat", part: { kind: "class", ranges }, min, max: Number.POSITIVE_INFINITY }
    : null;
}

/** Merges loops within loops, and adjacent loops. */
function withoutLoopsBetween(parts: readonly Node[]): readonly Node[] {
  const found: Node[] = [];
  for (const part of parts) {
    const own = part.kind === "repeat" && isLoop(part) && hasLoop(part.part) ? (joined([part]) ?? part) : part;
    const last = found.at(-1);
    const both = last && isLoop(last) && isLoop(own) ? joined([last, own]) : null;
    if (both) found[found.length - 1] = both;
    else found.push(own);
  }
  return found;
}

/** A node in the engine's EBNF. With `isLoose`, repetitions of variable length are written with any length. */
function written(node: Node, names: ReadonlyMap<string, string>, isLoose: boolean): string {
  const inner = (part: Node) => written(part, names, isLoose);
  switch (node.kind) {
    case "text":
      return `"${[...node.text].map(writtenCharacter).join("")}"`;
    case "class":
      return writtenClass(node.ranges);
    case "rule":
      return names.get(node.name)!;
    case "sequence":
      return node.parts.length === 0 ? '""' : `(${withoutLoopsBetween(node.parts).map(inner).join(" ")})`;
    case "choice":
      return `(${node.options.map(inner).join(" | ")})`;
    case "relaxed":
      return inner(node.superset);
    case "repeat": {
      const [whole] = withoutLoopsBetween([node]);
      if (whole !== node) return inner(whole!);
      const { copies, ...counts } = countsTold(node);
      const isOpen = copies > 1 && node.min !== node.max;
      const loose = isLoose && isOpen ? { min: Math.min(counts.min, 1), max: Number.POSITIVE_INFINITY } : counts;
      // Nested counts make a text ambiguous, too.
      return `(${written(node.part, names, isLoose || copies > 1)})${writtenCount(loose)}`;
    }
  }
}

function writtenCount({ min, max }: { min: number; max: number }): string {
  if (max === Number.POSITIVE_INFINITY) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  return min === 0 && max === 1 ? "?" : `{${min},${max}}`;
}

const ASCII_LAST = 0x7f;

/** Writes a character class. The engine's classes are ASCII: beyond it, a class has all characters or none. */
function writtenClass(ranges: readonly Range[]): string {
  const isOpen = (ranges.at(-1)?.[1] ?? 0) > ASCII_LAST;
  const ascii = intersection(isOpen ? complement(ranges) : ranges, [[0, ASCII_LAST]]);
  const items = ascii.map(([first, last]) =>
    first === last ? writtenPoint(first) : `${writtenPoint(first)}-${writtenPoint(last)}`,
  );
  // The engine refuses a negated class that is empty.
  if (isOpen && items.length === 0) return "([\\u0000] | [^\\u0000])";
  return `[${isOpen ? "^" : ""}${items.join("")}]`;
}

function writtenCharacter(character: string): string {
  return /[A-Za-z0-9 _.,:;(){}<>/+*=!?#@&%$|~-]/.test(character) ? character : writtenPoint(character.codePointAt(0)!);
}

function writtenPoint(point: number): string {
  if (point < 0x10000) return `\\u${point.toString(16).toUpperCase().padStart(4, "0")}`;
  return `\\U${point.toString(16).toUpperCase().padStart(8, "0")}`;
}
