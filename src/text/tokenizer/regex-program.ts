/** Compiles syntax trees of patterns to programs for a backtracking machine. */
import { CharacterSet } from "./character-set.ts";
import type { Node, Place } from "./regex-node.ts";
import { PatternError } from "./regex-reader.ts";

/** Operations, each followed by its operands. Targets are indices into the code. */
export const Op = {
  match: 0,
  /** codePoint */
  character: 1,
  /** set */
  set: 2,
  /** target */
  jump: 3,
  /** first, second: goes to the first target, and to the second on failure. */
  split: 4,
  /** set, least, most (-1: any), possessive: matches as many characters of a set as possible, fewer on backtracking. */
  many: 5,
  /** set, other: goes to `other` if the next character is not in the set; else goes on, and to `other` on failure. */
  branch: 6,
  /** place */
  place: 7,
  /** register: begins an atomic part, which is not backtracked into. */
  enter: 8,
  /** register, restore: ends the atomic part; with restore 1, returns to where it began. */
  leave: 9,
  /** register, target: begins a negative look-around; goes to the target when it does not match. */
  enterNot: 10,
  /** register: a negative look-around has matched, so the match fails. */
  failNot: 11,
  /** characters: moves back by a number of characters. */
  back: 12,
  /** register: fails unless the position is where the register's part began. */
  same: 13,
  /** register: records where an iteration of a loop begins. */
  round: 14,
  /** register, target: leaves a loop whose iteration matched nothing. */
  progress: 15,
  /** slot: records the position as beginning or end of a group. */
  keep: 16,
  /** group: matches the text of a group again (backreference). */
  again: 17,
} as const;

export const places = [
  "textStart",
  "textEnd",
  "finalEnd",
  "lineStart",
  "lineEnd",
  "wordEdge",
  "noWordEdge",
  "searchStart",
] as const satisfies readonly Place[];

export interface Program {
  readonly code: Int32Array;
  readonly sets: readonly CharacterSet[];
  readonly registers: number;
  readonly groups: number;
  /** Characters that a match can begin with; null when unknown or when it may be empty. */
  readonly first: CharacterSet | null;
}

const CODE_LIMIT = 200_000;
const LOOK_BEHIND_LIMIT = 100;

export function compile(root: Node): Program {
  return new Compiler().compile(root);
}

class Compiler {
  readonly #code: number[] = [];
  readonly #sets: CharacterSet[] = [];
  readonly #ids = new Map<CharacterSet, number>();
  readonly #firsts = new Map<Node, CharacterSet | null>();
  readonly #kept = new Set<number>();
  #registers = 0;

  compile(root: Node): Program {
    this.#findBackReferences(root, new Set(), false);
    this.#node(root);
    this.#emit(Op.match);
    const groups = [...this.#kept].reduce((most, index) => Math.max(most, index), 0) + 1;
    return {
      ...{ code: Int32Array.from(this.#code), sets: this.#sets, registers: this.#registers, groups },
      first: this.#first(root),
    };
  }

  /** Finds groups with backreferences; groups within atomic parts are refused, since they cannot be undone. */
  #findBackReferences(node: Node, closed: Set<number>, isClosed: boolean): void {
    if (node.kind === "back") {
      if (closed.has(node.index)) throw new PatternError("a reference to a group of an atomic part is not supported");
      this.#kept.add(node.index);
    }
    if (node.kind === "group" && isClosed) closed.add(node.index);
    const closes =
      node.kind === "atomic" || node.kind === "look" || (node.kind === "repeat" && node.mode === "possessive");
    if ("nodes" in node) for (const child of node.nodes) this.#findBackReferences(child, closed, isClosed);
    if ("node" in node) this.#findBackReferences(node.node, closed, isClosed || closes);
  }

  #emit(...words: number[]): number {
    const at = this.#code.length;
    if (at > CODE_LIMIT) throw new PatternError("it is too large");
    this.#code.push(...words);
    return at;
  }

  #setId(set: CharacterSet): number {
    let id = this.#ids.get(set);
    if (id === undefined) {
      id = this.#sets.push(set) - 1;
      this.#ids.set(set, id);
    }
    return id;
  }

  #node(node: Node): void {
    switch (node.kind) {
      case "character":
        this.#emit(Op.character, node.codePoint);
        return;
      case "set":
        this.#emit(Op.set, this.#setId(node.set));
        return;
      case "sequence":
        for (const child of node.nodes) this.#node(child);
        return;
      case "choice":
        this.#choice(node.nodes);
        return;
      case "repeat":
        this.#repeat(node);
        return;
      case "group":
        this.#group(node);
        return;
      case "atomic":
        this.#atomic(() => this.#node(node.node));
        return;
      case "look":
        this.#look(node);
        return;
      case "place":
        this.#emit(Op.place, places.indexOf(node.place));
        return;
      case "back":
        this.#emit(Op.again, node.index);
    }
  }

  #choice(branches: readonly Node[]): void {
    const ends: number[] = [];
    for (const branch of branches.slice(0, -1)) {
      const first = this.#first(branch);
      const at = first ? this.#emit(Op.branch, this.#setId(first), 0) : this.#emit(Op.split, 0, 0);
      if (!first) this.#code[at + 1] = at + 3;
      this.#node(branch);
      ends.push(this.#emit(Op.jump, 0));
      this.#code[at + 2] = this.#code.length;
    }
    this.#node(branches.at(-1)!);
    for (const end of ends) this.#code[end + 1] = this.#code.length;
  }

  #repeat(node: Extract<Node, { kind: "repeat" }>): void {
    const { node: child, least, most, mode } = node;
    const set = this.#single(child);
    if (set && mode !== "lazy") {
      this.#emit(
        Op.many,
        this.#setId(set),
        least,
        most === Number.POSITIVE_INFINITY ? -1 : most,
        Number(mode === "possessive"),
      );
      return;
    }
    if (mode === "possessive") {
      this.#atomic(() => this.#repeat({ ...node, mode: "greedy" }));
      return;
    }
    for (let i = 0; i < least; i++) this.#node(child);
    if (most === Number.POSITIVE_INFINITY) this.#loop(child, mode === "lazy");
    else this.#optional(child, most - least, mode === "lazy");
  }

  #optional(child: Node, times: number, isLazy: boolean): void {
    const ends: number[] = [];
    for (let i = 0; i < times; i++) {
      const at = this.#emit(Op.split, 0, 0);
      this.#code[at + (isLazy ? 2 : 1)] = at + 3;
      ends.push(at + (isLazy ? 1 : 2));
      this.#node(child);
    }
    for (const end of ends) this.#code[end] = this.#code.length;
  }

  #loop(child: Node, isLazy: boolean): void {
    const mayBeEmpty = isNullable(child);
    const register = mayBeEmpty ? this.#registers++ : -1;
    const at = this.#emit(Op.split, 0, 0);
    this.#code[at + (isLazy ? 2 : 1)] = at + 3;
    if (mayBeEmpty) this.#emit(Op.round, register);
    this.#node(child);
    const check = mayBeEmpty ? this.#emit(Op.progress, register, 0) : -1;
    this.#emit(Op.jump, at);
    this.#code[at + (isLazy ? 1 : 2)] = this.#code.length;
    if (check >= 0) this.#code[check + 2] = this.#code.length;
  }

  #group({ index, node }: Extract<Node, { kind: "group" }>): void {
    if (!this.#kept.has(index)) {
      this.#node(node);
      return;
    }
    this.#emit(Op.keep, index * 2);
    this.#node(node);
    this.#emit(Op.keep, index * 2 + 1);
  }

  #atomic(body: () => void): void {
    const register = this.#registers++;
    this.#emit(Op.enter, register);
    body();
    this.#emit(Op.leave, register, 0);
  }

  #look({ node, behind, negative }: Extract<Node, { kind: "look" }>): void {
    const register = this.#registers++;
    const at = negative ? this.#emit(Op.enterNot, register, 0) : this.#emit(Op.enter, register);
    if (behind) this.#behind(node, register);
    else this.#node(node);
    if (negative) {
      this.#emit(Op.failNot, register);
      this.#code[at + 2] = this.#code.length;
    } else this.#emit(Op.leave, register, 1);
  }

  /** Compiles look-behind: tries the part from each earlier position at which it may begin. */
  #behind(node: Node, register: number): void {
    const [least, most] = lengths(node);
    if (most - least >= LOOK_BEHIND_LIMIT) throw new PatternError("looking behind without a bound is not supported");
    const ends: number[] = [];
    for (let length = least; length <= most; length++) {
      const at = length < most ? this.#emit(Op.split, 0, 0) : -1;
      if (at >= 0) this.#code[at + 1] = at + 3;
      this.#emit(Op.back, length);
      this.#node(node);
      this.#emit(Op.same, register);
      if (at < 0) break;
      ends.push(this.#emit(Op.jump, 0));
      this.#code[at + 2] = this.#code.length;
    }
    for (const end of ends) this.#code[end + 1] = this.#code.length;
  }

  /** The set of a node that always matches one character; null for others. */
  #single(node: Node): CharacterSet | null {
    if (node.kind === "set") return node.set;
    return node.kind === "character" ? this.#first(node) : null;
  }

  #first(node: Node): CharacterSet | null {
    let first = this.#firsts.get(node);
    if (first === undefined) {
      first = this.#findFirst(node);
      this.#firsts.set(node, first);
    }
    return first;
  }

  #findFirst(node: Node): CharacterSet | null {
    switch (node.kind) {
      case "character":
        return new CharacterSet((codePoint) => codePoint === node.codePoint);
      case "set":
        return node.set;
      case "choice":
        return union(node.nodes.map((child) => this.#first(child)));
      case "sequence":
        return this.#firstOf(node.nodes);
      case "repeat":
        return node.least > 0 ? this.#first(node.node) : null;
      case "group":
      case "atomic":
        return this.#first(node.node);
      default:
        return null;
    }
  }

  /** First characters of a sequence: a nullable node adds those of the next; null if a node's are unknown. */
  #firstOf(nodes: readonly Node[]): CharacterSet | null {
    const firsts: (CharacterSet | null)[] = [];
    for (const node of nodes) {
      if (node.kind === "look" || node.kind === "place") continue;
      if (node.kind === "repeat" && node.least === 0) {
        firsts.push(this.#first(node.node));
        if (firsts.at(-1) === null) return null;
        continue;
      }
      firsts.push(this.#first(node));
      return union(firsts);
    }
    return null;
  }
}

function union(sets: readonly (CharacterSet | null)[]): CharacterSet | null {
  if (sets.some((set) => set === null)) return null;
  if (sets.length === 1) return sets[0]!;
  return new CharacterSet((codePoint) => sets.some((set) => set!.has(codePoint)));
}

/** Whether a node can match the empty text. */
function isNullable(node: Node): boolean {
  return lengths(node)[0] === 0;
}

/** Least and most characters that a node matches. */
function lengths(node: Node): [number, number] {
  switch (node.kind) {
    case "character":
    case "set":
      return [1, 1];
    case "sequence":
      return node.nodes.map(lengths).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
    case "choice":
      return node.nodes.map(lengths).reduce(([a, b], [c, d]) => [Math.min(a, c), Math.max(b, d)]);
    case "repeat": {
      const [least, most] = lengths(node.node);
      return [least * node.least, most === 0 ? 0 : most * node.most];
    }
    case "group":
    case "atomic":
      return lengths(node.node);
    case "back":
      return [0, Number.POSITIVE_INFINITY];
    default:
      return [0, 0];
  }
}
