/**
 * Nondeterministic finite automata over code points, without epsilon transitions: built from trees, combined and complemented.
 */
import { ANY, complement, intersection, normalized, type Range } from "./code-points.ts";
import type { Tree } from "./grammar.ts";

export interface Edge {
  /** Characters of the transition, normalized ranges. */
  readonly ranges: readonly Range[];
  readonly to: number;
}

/** States are indices. Each can be reached from a start, and from each an accepting state can be reached. */
export interface Automaton {
  readonly starts: readonly number[];
  readonly edges: readonly (readonly Edge[])[];
  readonly accepts: readonly boolean[];
}

/** An assertion about a place of the text, or an automaton as a leaf of a tree. */
type Anchor =
  | { readonly kind: "start" | "end" | "boundary" | "inside" }
  | { readonly kind: "automaton"; readonly automaton: Automaton };

/** Tree from which automata are built. */
export type Pattern = Tree<Anchor>;

/** Thrown when an automaton exceeds its limit of states or edges. */
export class AutomatonSizeError extends Error {}

const STATES_MAX = 50_000;
const EDGES_MAX = 500_000;

/** Kinds of the next character, as bits: a word character, another one, the end of the text. */
const WORD = 1;
const OTHER = 2;
const END = 4;

const WORDS: readonly Range[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const NO_WORDS = complement(WORDS);

/** An epsilon transition; its anchor restricts the kind of the next character, depending on the character before. */
interface Step {
  readonly to: number;
  readonly anchor: "start" | "end" | "boundary" | "inside" | null;
}

/** Builds states with epsilon transitions by Thompson's construction. */
class Builder {
  readonly steps: Step[][] = [];
  readonly edges: Edge[][] = [];
  /** Whether some anchor depends on the character before it. */
  looksBack = false;
  #edgeCount = 0;

  state(): number {
    if (this.steps.length >= STATES_MAX) throw new AutomatonSizeError();
    this.edges.push([]);
    return this.steps.push([]) - 1;
  }

  step(from: number, to: number, anchor: Step["anchor"] = null): void {
    this.#count();
    this.steps[from]!.push({ to, anchor });
  }

  edge(from: number, ranges: readonly Range[], to: number): void {
    this.#count();
    if (ranges.length > 0) this.edges[from]!.push({ ranges, to });
  }

  #count(): void {
    if (++this.#edgeCount > EDGES_MAX) throw new AutomatonSizeError();
  }

  /** Adds states that read a tree from the state `from`; returns the state after it. */
  add(tree: Pattern, from: number): number {
    switch (tree.kind) {
      case "text":
        return [...tree.text].reduce((at, character) => {
          const next = this.state();
          const point = character.codePointAt(0)!;
          this.edge(at, normalized([[point, point]]), next);
          return next;
        }, from);
      case "class": {
        const next = this.state();
        this.edge(from, normalized(tree.ranges), next);
        return next;
      }
      case "sequence":
        return tree.parts.reduce((at, part) => this.add(part, at), from);
      case "choice": {
        const end = this.state();
        for (const option of tree.options) this.step(this.add(option, this.#after(from)), end);
        return end;
      }
      case "repeat":
        return this.#repeat(tree.part, tree.min, tree.max, from);
      case "automaton":
        return this.#embed(tree.automaton, from);
      default: {
        const next = this.state();
        this.looksBack ||= tree.kind !== "end";
        this.step(from, next, tree.kind);
        return next;
      }
    }
  }

  #after(from: number): number {
    const next = this.state();
    this.step(from, next);
    return next;
  }

  #repeat(part: Pattern, min: number, max: number, from: number): number {
    let at = from;
    for (let i = 0; i < min; i++) at = this.add(part, at);
    const end = this.state();
    if (max === Number.POSITIVE_INFINITY) {
      const again = this.#after(at);
      this.step(this.add(part, again), again);
      this.step(again, end);
      return end;
    }
    for (let i = min; i < max; i++) {
      this.step(at, end);
      at = this.add(part, at);
    }
    this.step(at, end);
    return end;
  }

  #embed({ starts, edges, accepts }: Automaton, from: number): number {
    const states = edges.map(() => this.state());
    const end = this.state();
    for (const start of starts) this.step(from, states[start]!);
    for (const [state, own] of edges.entries()) {
      for (const { ranges, to } of own) this.edge(states[state]!, ranges, states[to]!);
      if (accepts[state]) this.step(states[state]!, end);
    }
    return end;
  }
}

/** What precedes a state: the start of the text, or a character of this kind. */
type Before = "start" | typeof WORD | typeof OTHER;

/** Kinds of characters that may follow an epsilon transition with this anchor. */
function allowedBehind(anchor: Step["anchor"], before: Before): number {
  switch (anchor) {
    case null:
      return WORD | OTHER | END;
    case "start":
      return before === "start" ? WORD | OTHER | END : 0;
    case "end":
      return END;
    default:
      return (anchor === "boundary") === (before === WORD) ? OTHER | END : WORD;
  }
}

/** The automaton that accepts exactly the texts of a tree. AutomatonSizeError for one that is too large. */
export function automatonOf(tree: Pattern): Automaton {
  const builder = new Builder();
  const start = builder.state();
  const end = builder.add(tree, start);
  const ids = new Map<string, number>();
  const waiting: [state: number, before: Before][] = [];
  const idOf = (state: number, before: Before): number => {
    const kind = builder.looksBack ? before : OTHER;
    const key = `${state} ${kind}`;
    let id = ids.get(key);
    if (id === undefined) {
      id = ids.size;
      ids.set(key, id);
      waiting.push([state, kind]);
      if (id >= STATES_MAX) throw new AutomatonSizeError();
    }
    return id;
  };
  idOf(start, "start");
  const edges: Edge[][] = [];
  const accepts: boolean[] = [];
  let count = 0;
  for (let id = 0; id < waiting.length; id++) {
    const [from, before] = waiting[id]!;
    const own: Edge[] = [];
    let canEnd = false;
    for (const [state, kinds] of closure(builder, from, before)) {
      if (state === end && kinds & END) canEnd = true;
      for (const { ranges, to } of builder.edges[state]!) own.push(...edgesOf(ranges, kinds, to, idOf, builder));
    }
    count += own.length;
    if (count > EDGES_MAX) throw new AutomatonSizeError();
    edges.push(own);
    accepts.push(canEnd);
  }
  return trimmed({ starts: [0], edges, accepts });
}

/** Edges for the characters whose kinds may come next, divided by kind where later anchors depend on it. */
function edgesOf(
  ranges: readonly Range[],
  kinds: number,
  to: number,
  idOf: (state: number, before: Before) => number,
  { looksBack }: Builder,
): Edge[] {
  if (!looksBack) return kinds & (WORD | OTHER) ? [{ ranges, to: idOf(to, OTHER) }] : [];
  return ([WORD, OTHER] as const).flatMap((kind) => {
    const own = kinds & kind ? intersection(ranges, kind === WORD ? WORDS : NO_WORDS) : [];
    return own.length > 0 ? [{ ranges: own, to: idOf(to, kind) }] : [];
  });
}

/** Epsilon closure: the states reached, each with the kinds of characters that may come next there. */
function closure({ steps }: Builder, from: number, before: Before): [state: number, kinds: number][] {
  const met = new Set<number>();
  const found: [number, number][] = [];
  const waiting: [number, number][] = [[from, WORD | OTHER | END]];
  for (let one = waiting.pop(); one; one = waiting.pop()) {
    const [state, kinds] = one;
    const key = 8 * state + kinds;
    if (kinds === 0 || met.has(key)) continue;
    met.add(key);
    found.push(one);
    for (const { to, anchor } of steps[state]!) waiting.push([to, kinds & allowedBehind(anchor, before)]);
  }
  return found;
}

/** Removes states that no start reaches, or that reach no accepting state. */
function trimmed({ starts, edges, accepts }: Automaton): Automaton {
  const sources: number[][] = edges.map(() => []);
  for (const [from, own] of edges.entries()) for (const { to } of own) sources[to]!.push(from);
  const isLive = closed(
    accepts.flatMap((isEnd, state) => (isEnd ? [state] : [])),
    (state) => sources[state]!,
    edges.length,
  );
  const isMet = closed(
    starts.filter((state) => isLive[state]),
    (state) => edges[state]!.flatMap(({ to }) => (isLive[to] ? [to] : [])),
    edges.length,
  );
  const ids: number[] = [];
  let count = 0;
  for (const isKept of isMet) ids.push(isKept ? count++ : -1);
  const kept = <T>(list: readonly T[]): T[] => list.filter((_, state) => ids[state]! >= 0);
  return {
    starts: starts.flatMap((state) => (ids[state]! >= 0 ? [ids[state]!] : [])),
    edges: kept(edges).map((own) => own.flatMap(({ ranges, to }) => (ids[to]! >= 0 ? [{ ranges, to: ids[to]! }] : []))),
    accepts: kept(accepts),
  };
}

function closed(from: readonly number[], next: (state: number) => readonly number[], count: number): boolean[] {
  const isMet = new Array<boolean>(count).fill(false);
  const waiting = [...from];
  for (const state of from) isMet[state] = true;
  for (let state = waiting.pop(); state !== undefined; state = waiting.pop())
    for (const to of next(state)) {
      if (isMet[to]) continue;
      isMet[to] = true;
      waiting.push(to);
    }
  return isMet;
}

/** Intersection: accepts what both automata accept. AutomatonSizeError where it takes too many states. */
export function both(a: Automaton, b: Automaton): Automaton {
  const ids = new Map<number, number>();
  const pairs: [number, number][] = [];
  const idOf = (one: number, other: number): number => {
    const key = one * b.edges.length + other;
    const known = ids.get(key);
    if (known !== undefined) return known;
    if (pairs.length >= STATES_MAX) throw new AutomatonSizeError();
    ids.set(key, pairs.length);
    return pairs.push([one, other]) - 1;
  };
  const starts = a.starts.flatMap((one) => b.starts.map((other) => idOf(one, other)));
  const edges: Edge[][] = [];
  let count = 0;
  for (let id = 0; id < pairs.length; id++) {
    const [one, other] = pairs[id]!;
    const own: Edge[] = [];
    for (const first of a.edges[one]!)
      for (const second of b.edges[other]!) {
        const ranges = intersection(first.ranges, second.ranges);
        if (ranges.length > 0) own.push({ ranges, to: idOf(first.to, second.to) });
        if (++count > 4 * EDGES_MAX) throw new AutomatonSizeError();
      }
    edges.push(own);
  }
  return trimmed({ starts, edges, accepts: pairs.map(([one, other]) => a.accepts[one]! && b.accepts[other]!) });
}

/** Union: accepts what either automaton accepts. */
export function either(a: Automaton, b: Automaton): Automaton {
  const count = a.edges.length;
  return {
    starts: [...a.starts, ...b.starts.map((state) => state + count)],
    edges: [...a.edges, ...moved(b.edges, count)],
    accepts: [...a.accepts, ...b.accepts],
  };
}

/** Concatenation: a text of the first automaton followed by one of the second. */
export function followedBy(a: Automaton, b: Automaton): Automaton {
  const count = a.edges.length;
  const later = moved(b.edges, count);
  const heads = b.starts.flatMap((state) => later[state]!);
  const canEnd = b.starts.some((state) => b.accepts[state]);
  return trimmed({
    starts: a.starts,
    edges: [...a.edges.map((own, state) => (a.accepts[state] ? [...own, ...heads] : own)), ...later],
    accepts: [...a.accepts.map((isEnd) => isEnd && canEnd), ...b.accepts],
  });
}

/** Accepts all texts except the given ones. */
export function allBut(texts: readonly string[]): Automaton {
  const edges: Edge[][] = [[], [{ ranges: ANY, to: 1 }]];
  const accepts = [true, true];
  const children: Map<string, number>[] = [new Map()];
  for (const text of texts) {
    let at = 0;
    for (const character of text) {
      const next = children[at]!.get(character) ?? edges.push([]) - 1;
      children[at]!.set(character, next);
      children[next] ??= new Map();
      accepts[next] ??= true;
      at = next;
    }
    accepts[at] = false;
  }
  for (const [state, own] of children.entries()) {
    if (!own) continue;
    const known = [...own].map(([character, to]) => ({ ranges: [pointRange(character)], to }));
    const rest = complement(known.flatMap(({ ranges }) => ranges));
    edges[state] = [...known, { ranges: rest, to: 1 }];
  }
  return trimmed({ starts: [0], edges, accepts });
}

function pointRange(character: string): Range {
  return [character.codePointAt(0)!, character.codePointAt(0)!];
}

function moved(edges: readonly (readonly Edge[])[], count: number): Edge[][] {
  return edges.map((own) => own.map(({ ranges, to }) => ({ ranges, to: to + count })));
}

/** Transitions of a set of states: disjoint character sets, each with the ascending states that it leads to. */
export function successors(automaton: Automaton, states: readonly number[]): { ranges: Range[]; to: number[] }[] {
  const own = states.flatMap((state) => automaton.edges[state]!);
  const [only] = own;
  if (own.length === 1) return [{ ranges: [...only!.ranges], to: [only!.to] }];
  const events: [point: number, edge: number][] = [];
  for (const [index, { ranges }] of own.entries())
    for (const [first, last] of ranges) events.push([first, index], [last + 1, ~index]);
  events.sort(([a], [b]) => a - b);
  const found = new Map<string, { ranges: Range[]; to: number[] }>();
  const active = new Map<number, number>();
  for (let i = 0; i < events.length; ) {
    const point = events[i]![0];
    for (; i < events.length && events[i]![0] === point; i++) {
      const edge = events[i]![1];
      const { to } = own[edge < 0 ? ~edge : edge]!;
      const count = (active.get(to) ?? 0) + (edge < 0 ? -1 : 1);
      if (count === 0) active.delete(to);
      else active.set(to, count);
    }
    const next = events[i]?.[0];
    if (next === undefined || active.size === 0) continue;
    const to = [...active.keys()].sort((a, b) => a - b);
    const key = to.join();
    const known = found.get(key) ?? { ranges: [], to };
    known.ranges.push([point, next - 1]);
    found.set(key, known);
  }
  return [...found.values()].map(({ ranges, to }) => ({ ranges: normalized(ranges), to }));
}

/** Most states of an automaton that is made deterministic. */
const DETERMINED_MAX = 5_000;

/** Complement: accepts all texts that the automaton does not accept. AutomatonSizeError where it takes too many states. */
export function others(automaton: Automaton): Automaton {
  const ids = new Map<string, number>();
  const sets: number[][] = [];
  const idOf = (set: number[]): number => {
    const key = set.join();
    const known = ids.get(key);
    if (known !== undefined) return known;
    if (sets.length >= DETERMINED_MAX) throw new AutomatonSizeError();
    ids.set(key, sets.length);
    return sets.push(set) - 1;
  };
  const start = idOf([...automaton.starts].sort((a, b) => a - b));
  const edges: Edge[][] = [];
  for (let id = 0; id < sets.length; id++) {
    const own = successors(automaton, sets[id]!);
    const rest = complement(own.flatMap(({ ranges }) => ranges));
    edges.push([
      ...own.map(({ ranges, to }) => ({ ranges, to: idOf(to) })),
      ...(rest.length > 0 ? [{ ranges: rest, to: idOf([]) }] : []),
    ]);
  }
  return trimmed({
    starts: [start],
    edges,
    accepts: sets.map((set) => !set.some((state) => automaton.accepts[state])),
  });
}
