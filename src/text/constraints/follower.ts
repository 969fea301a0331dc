/**
 * Follows a text through a grammar, byte by byte and exactly. The engine's masks may allow too much, since it is not told
 * lengths and characters beyond ASCII: whether a drawn token may come is decided here.
 */
import { UnsupportedError } from "../../errors.ts";
import { normalized, type Range } from "./code-points.ts";
import { type Followed, followed, type Grammar, type Node, repeat } from "./grammar.ts";
import type { State } from "./states.ts";

type Part = Node | Followed | Call;

/** The end of a rule that several cells call at the same place of the text: each call continues with its own rest. */
interface Call {
  readonly kind: "call";
  readonly rests: Set<Cell | null>;
}

/** What is left to be read, as a linked list: a part, and the cell after it. Equal lists are one object. */
interface Cell {
  readonly node: Part;
  readonly rest: Cell | null;
  /** Cells whose `rest` is this one, by their nodes. */
  readonly followers: Map<Part, Cell>;
  /** The place of a text of which only this is left; null until first needed. */
  place: Place | null;
}

/** Characters that may come next, and what is left after them. */
interface Leaf {
  readonly ranges: readonly Range[];
  readonly next: Cell | null;
}

/** The position of a text in its grammar. */
export interface Place {
  readonly leaves: readonly Leaf[];
  readonly canEnd: boolean;
  /** Bytes of an incomplete UTF-8 character. */
  readonly pending: readonly number[];
}

/** Most parallel readings of a text. */
const LEAVES_MAX = 50_000;
/** Number of cells above which all calls of a rule share one end, so that readings before it do not multiply those within. */
const CELLS_APART = 500;

export class GrammarFollower {
  readonly #grammar: Grammar;
  /** Cells without a rest, by their nodes. */
  readonly #last = new Map<Part, Cell>();
  /** Repetitions with one iteration less to come, by the repetition. */
  readonly #shorter = new Map<Node, Node>();
  /** Text nodes without their first character, by the text node. */
  readonly #tails = new Map<Node, Node>();
  readonly #followed = new Map<State, Followed>();
  place: Place;

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
    this.place = this.#expanded([this.#cell(grammar.get("root")!, null)]);
  }

  /** The place after these bytes; null where they cannot come. */
  after(bytes: readonly number[]): Place | null {
    let place: Place | null = this.place;
    for (const byte of bytes) {
      place = this.#step(place, byte);
      if (!place) return null;
    }
    return place;
  }

  #step(place: Place, byte: number): Place | null {
    const pending = [...place.pending, byte];
    const range = pointsOf(pending);
    if (!range) return null;
    const leaves = place.leaves.filter(({ ranges }) =>
      ranges.some(([first, last]) => first <= range[1] && last >= range[0]),
    );
    if (leaves.length === 0) return null;
    if (range[0] !== range[1]) return { leaves, canEnd: false, pending };
    return this.#expanded(leaves.map(({ next }) => next));
  }

  /** The place of a text of which one of several cells is left. A single cell always gives the same object. */
  #expanded(cells: readonly (Cell | null)[]): Place {
    const [first] = cells;
    if (!first || cells.some((cell) => cell !== first)) return this.#leavesOf(cells);
    first.place ??= this.#leavesOf([first]);
    return first.place;
  }

  /** The place whose leaves are the characters that may come next in these cells. */
  #leavesOf(cells: readonly (Cell | null)[]): Place {
    return this.#expansion(cells, null) ?? this.#expansion(cells, new Map())!;
  }

  /**
   * Expands cells to their next characters. With `calls`, one cell serves all calls of a rule; without, null where there are
   * too many cells.
   */
  #expansion(cells: readonly (Cell | null)[], calls: Map<string, Cell> | null): Place | null {
    const leaves: Leaf[] = [];
    const met = new Set<Cell | null>();
    const waiting = [...cells];
    while (waiting.length > 0) {
      const cell = waiting.pop()!;
      if (met.has(cell)) continue;
      met.add(cell);
      if (cell === null) continue;
      const { node, rest } = cell;
      switch (node.kind) {
        case "text": {
          const point = node.text.codePointAt(0);
          if (point === undefined) waiting.push(rest);
          else leaves.push({ ranges: [[point, point]], next: this.#withTail(node, point, rest) });
          break;
        }
        case "class":
          leaves.push({ ranges: node.ranges, next: rest });
          break;
        case "rule":
          if (calls) waiting.push(...this.#joined(node.name, rest, calls, met));
          else waiting.push(this.#cell(this.#grammar.get(node.name)!, rest));
          break;
        case "call":
          waiting.push(...node.rests);
          break;
        case "sequence":
          waiting.push(node.parts.reduceRight<Cell | null>((after, part) => this.#cell(part, after), rest));
          break;
        case "choice":
          for (const option of node.options) waiting.push(this.#cell(option, rest));
          break;
        case "followed":
          if (node.state.canEnd) waiting.push(rest);
          for (const { ranges, next } of node.state.leaves)
            leaves.push({ ranges, next: this.#cell(this.#followedBy(next), rest) });
          break;
        case "relaxed":
          waiting.push(this.#cell(node.exact, rest));
          break;
        case "repeat":
          if (node.min === 0) waiting.push(rest);
          if (node.max > 0) waiting.push(this.#cell(node.part, this.#cell(this.#oneLess(node), rest)));
          break;
      }
      if (!calls && met.size > CELLS_APART) return null;
      if (leaves.length > LEAVES_MAX || met.size > 2 * LEAVES_MAX)
        throw new UnsupportedError(
          "constraint: a text can be read in too many ways; expected a grammar that says it in one",
        );
    }
    return { leaves, canEnd: met.has(null), pending: [] };
  }

  /** Adds a call of a rule to the calls that share its end; returns the cells that this newly makes possible. */
  #joined(name: string, rest: Cell | null, calls: Map<string, Cell>, met: ReadonlySet<Cell | null>): (Cell | null)[] {
    const end = calls.get(name);
    if (!end) {
      const call = {
        node: { kind: "call", rests: new Set([rest]) } as Call,
        rest: null,
        followers: new Map(),
        place: null,
      };
      calls.set(name, call);
      return [this.#cell(this.#grammar.get(name)!, call)];
    }
    (end.node as Call).rests.add(rest);
    // The rule can be empty, so it may have ended here already.
    return met.has(end) ? [rest] : [];
  }

  #withTail(node: Node & { kind: "text" }, point: number, rest: Cell | null): Cell | null {
    const tail = node.text.slice(String.fromCodePoint(point).length);
    if (tail === "") return rest;
    const known = this.#tails.get(node) ?? { kind: "text", text: tail };
    this.#tails.set(node, known);
    return this.#cell(known, rest);
  }

  #followedBy(state: State): Followed {
    const known = this.#followed.get(state) ?? followed(state);
    this.#followed.set(state, known);
    return known;
  }

  #oneLess(node: Node & { kind: "repeat" }): Node {
    if (node.min === 0 && node.max === Number.POSITIVE_INFINITY) return node;
    const known = this.#shorter.get(node) ?? repeat(node.part, Math.max(0, node.min - 1), node.max - 1);
    this.#shorter.set(node, known);
    return known;
  }

  #cell(node: Part, rest: Cell | null): Cell {
    const followers = rest?.followers ?? this.#last;
    let cell = followers.get(node);
    if (!cell) {
      cell = { node, rest, followers: new Map(), place: null };
      followers.set(node, cell);
    }
    return cell;
  }
}

/** First and last code point whose UTF-8 form begins with these bytes; null where there is none. */
function pointsOf(bytes: readonly number[]): Range | null {
  const [first] = bytes;
  if (first === undefined || (first >= 0x80 && first < 0xc2) || first > 0xf4) return null;
  if (first < 0x80) return bytes.length === 1 ? [first, first] : null;
  const length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  let point = first & (0xff >> (length + 1));
  for (const byte of bytes.slice(1)) {
    if ((byte & 0xc0) !== 0x80) return null;
    point = (point << 6) | (byte & 0x3f);
  }
  const missing = 6 * (length - bytes.length);
  const least = length === 2 ? 0x80 : length === 3 ? 0x800 : 0x10000;
  const low = Math.max(point << missing, least);
  const high = Math.min(((point + 1) << missing) - 1, 0x10ffff);
  const [found] = low > high ? [] : normalized([[low, high]]);
  return found
    ? [low >= 0xd800 && low <= 0xdfff ? found[0] : low, high >= 0xd800 && high <= 0xdfff ? found[1] : high]
    : null;
}
