/**
 * Matches patterns of tokenizer.json as Oniguruma does. JavaScript's regular expressions differ in syntax and meaning and
 * cannot be interrupted; this machine backtracks without recursion and counts its steps.
 */
import { CharacterSet } from "./character-set.ts";
import { namedClass } from "./regex-classes.ts";
import { compile, Op, type Program, places } from "./regex-program.ts";
import { PatternParser } from "./regex-syntax.ts";
import type { Work } from "./work-limit.ts";

/** Size of the backtracking stack: 4 million entries of three numbers, 48 MB. */
const STACK_LIMIT = 4_000_000 * 3;

/** First number of a backtracking entry that is no code index: what the entry restores. */
const RESTORE_REGISTER = -1;
const RESTORE_GROUP = -2;

const lineFeed = 10;
const word = new CharacterSet(namedClass("word")!);

export class Regex {
  readonly #program: Program;
  #stack = new Int32Array(3 * 64);
  readonly #heights: Int32Array;
  readonly #starts: Int32Array;
  readonly #groups: Int32Array;
  #work!: Work;
  #searchStart = 0;
  #height = 0;
  #at = 0;
  #pc = 0;

  /** Compiles a pattern. PatternError for an unsupported one. */
  constructor(source: string) {
    this.#program = compile(new PatternParser(source).parse());
    this.#heights = new Int32Array(this.#program.registers);
    this.#starts = new Int32Array(this.#program.registers);
    this.#groups = new Int32Array(this.#program.groups * 2);
  }

  /**
   * Calls `found` with the beginning and end of each match in a well-formed text. As in Rust's `onig`, an empty match directly
   * after the last match is skipped.
   */
  forEachMatch(text: string, work: Work, found: (start: number, end: number) => void): void {
    const { first } = this.#program;
    let from = 0;
    let lastEnd = -1;
    while (from <= text.length) {
      let start = from;
      let end = -1;
      for (; start <= text.length; start += characterLength(text, start)) {
        if (first && (start === text.length || !first.has(text.codePointAt(start)!))) continue;
        end = this.#matchAt(text, start, from, work);
        if (end >= 0) break;
      }
      work.add(start - from + 1);
      if (end < 0) return;
      if (end === start && start === lastEnd) {
        from = start + characterLength(text, start);
        continue;
      }
      found(start, end);
      from = end;
      lastEnd = end;
    }
  }

  /** End of the match that begins at `start`, -1 for none. */
  #matchAt(text: string, start: number, searchStart: number, work: Work): number {
    const { code, sets } = this.#program;
    this.#work = work;
    this.#height = 0;
    this.#searchStart = searchStart;
    if (this.#groups.length > 2) this.#groups.fill(-1);
    let pc = 0;
    let at = start;
    for (let steps = 0; ; steps++) {
      let isGoing = true;
      switch (code[pc]) {
        case Op.match:
          work.add(steps);
          return at;
        case Op.character: {
          const codePoint = code[pc + 1]!;
          isGoing = at < text.length && text.codePointAt(at) === codePoint;
          at += codePoint > 0xffff ? 2 : 1;
          pc += 2;
          break;
        }
        case Op.set: {
          const codePoint = at < text.length ? text.codePointAt(at)! : -1;
          isGoing = codePoint >= 0 && sets[code[pc + 1]!]!.has(codePoint);
          at += codePoint > 0xffff ? 2 : 1;
          pc += 2;
          break;
        }
        case Op.jump:
          pc = code[pc + 1]!;
          break;
        case Op.split:
          this.#push(code[pc + 2]!, at, -1);
          pc = code[pc + 1]!;
          break;
        case Op.branch:
          if (at < text.length && sets[code[pc + 1]!]!.has(text.codePointAt(at)!)) {
            this.#push(code[pc + 2]!, at, -1);
            pc += 3;
          } else pc = code[pc + 2]!;
          break;
        case Op.many: {
          const end = this.#many(pc, text, at);
          isGoing = end >= 0;
          if (isGoing) steps += (end - at) >> 3;
          at = end;
          pc += 5;
          break;
        }
        default:
          this.#at = at;
          isGoing = this.#step(text, pc);
          at = this.#at;
          pc = this.#pc;
      }
      if (!isGoing) {
        if (!this.#goBack(text)) {
          work.add(steps);
          return -1;
        }
        at = this.#at;
        pc = this.#pc;
      }
      if (steps > 10_000) {
        work.add(steps);
        steps = 0;
      }
    }
  }

  /**
   * Matches as many characters of a set as possible and returns their end, or -1 for too few. Pushes a backtracking entry for
   * fewer.
   */
  #many(pc: number, text: string, start: number): number {
    const { code, sets } = this.#program;
    const set = sets[code[pc + 1]!]!;
    const least = code[pc + 2]!;
    const most = code[pc + 3]!;
    let count = 0;
    let enough = start;
    let at = start;
    while (count !== most && at < text.length) {
      const codePoint = text.codePointAt(at)!;
      if (!set.has(codePoint)) break;
      at += codePoint > 0xffff ? 2 : 1;
      if (++count === least) enough = at;
    }
    if (count < least) {
      this.#work.add(count >> 3);
      return -1;
    }
    if (code[pc + 4] === 0 && at > enough) this.#push(pc + 5, at, enough);
    return at;
  }

  /** Executes a rarer operation at `#at` and sets `#pc` to the next one; false when it fails. */
  #step(text: string, pc: number): boolean {
    const { code } = this.#program;
    const operand = code[pc + 1]!;
    const at = this.#at;
    this.#pc = pc + 2;
    switch (code[pc]) {
      case Op.place:
        return isAt(operand, text, at, this.#searchStart);
      case Op.enter:
      case Op.enterNot:
        this.#heights[operand] = this.#height;
        this.#starts[operand] = at;
        if (code[pc] === Op.enter) return true;
        this.#pc = pc + 3;
        this.#push(code[pc + 2]!, at, -1);
        return true;
      case Op.leave:
        this.#height = this.#heights[operand]!;
        if (code[pc + 2] === 1) this.#at = this.#starts[operand]!;
        this.#pc = pc + 3;
        return true;
      case Op.failNot:
        this.#height = this.#heights[operand]!;
        return false;
      case Op.back: {
        let count = operand;
        for (; count > 0 && this.#at > 0; count--) this.#at -= previousLength(text, this.#at);
        return count === 0;
      }
      case Op.same:
        return at === this.#starts[operand];
      case Op.round:
        this.#push(RESTORE_REGISTER, operand, this.#starts[operand]!);
        this.#starts[operand] = at;
        return true;
      case Op.progress:
        this.#pc = at === this.#starts[operand] ? code[pc + 2]! : pc + 3;
        return true;
      case Op.keep:
        this.#push(RESTORE_GROUP, operand, this.#groups[operand]!);
        this.#groups[operand] = at;
        return true;
      default:
        return this.#again(operand, text);
    }
  }

  /** Matches the text of a group again. */
  #again(group: number, text: string): boolean {
    const from = this.#groups[group * 2]!;
    const to = this.#groups[group * 2 + 1]!;
    if (from < 0 || to < from) return false;
    this.#work.add((to - from) >> 3);
    if (!text.startsWith(text.slice(from, to), this.#at)) return false;
    this.#at += to - from;
    return true;
  }

  /** Backtracks to the last alternative; false when there is none. */
  #goBack(text: string): boolean {
    const stack = this.#stack;
    while (this.#height > 0) {
      const top = this.#height - 3;
      const target = stack[top]!;
      const first = stack[top + 1]!;
      const second = stack[top + 2]!;
      this.#height = top;
      if (target === RESTORE_REGISTER) this.#starts[first] = second;
      else if (target === RESTORE_GROUP) this.#groups[first] = second;
      else {
        this.#pc = target;
        this.#at = second < 0 ? first : first - previousLength(text, first);
        if (second >= 0 && this.#at > second) {
          stack[top + 1] = this.#at;
          this.#height = top + 3;
        }
        return true;
      }
    }
    return false;
  }

  #push(target: number, first: number, second: number): void {
    const height = this.#height;
    if (height + 3 > this.#stack.length) {
      if (height >= STACK_LIMIT) throw this.#work.outOfMemory();
      const stack = new Int32Array(this.#stack.length * 2);
      stack.set(this.#stack);
      this.#stack = stack;
    }
    this.#stack[height] = target;
    this.#stack[height + 1] = first;
    this.#stack[height + 2] = second;
    this.#height = height + 3;
  }
}

/** A pattern, shortened for an error. */
export function shownPattern(source: string): string {
  return JSON.stringify(source.length > 60 ? `${source.slice(0, 57)}...` : source);
}

/** Length in UTF-16 units of the character at an offset; 1 at the end. */
function characterLength(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  return unit >= 0xd800 && unit < 0xdc00 ? 2 : 1;
}

function previousLength(text: string, at: number): number {
  const unit = text.charCodeAt(at - 1);
  return unit >= 0xdc00 && unit < 0xe000 ? 2 : 1;
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && word.has(text.codePointAt(at)!);
}

function isAt(place: number, text: string, at: number, searchStart: number): boolean {
  const isEnd = at === text.length;
  const afterLine = at > 0 && text.charCodeAt(at - 1) === lineFeed;
  switch (places[place]) {
    case "textStart":
      return at === 0;
    case "textEnd":
      return isEnd;
    case "finalEnd":
      return isEnd || (at === text.length - 1 && text.charCodeAt(at) === lineFeed);
    case "lineStart":
      return at === 0 || (afterLine && !isEnd);
    case "lineEnd":
      return isEnd || text.charCodeAt(at) === lineFeed;
    case "searchStart":
      return at === searchStart;
    default: {
      const before = at > 0 && isWordAt(text, at - previousLength(text, at));
      return (before !== isWordAt(text, at)) === (places[place] === "wordEdge");
    }
  }
}
