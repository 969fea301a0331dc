/**
 * Patterns of tokenizer.json, as Oniguruma matches them. JavaScript's own patterns differ in syntax and meaning and
 * cannot be interrupted; this machine goes back without recursion and counts its steps.
 */
import { wordCharacter } from "./character-set.ts";
import { compile, Op, type Program, places } from "./regex-program.ts";
import { PatternError, PatternParser } from "./regex-syntax.ts";
import type { Work } from "./work-limit.ts";

/** Entries of three numbers that are kept for going back: 48 MB. */
const STACK_LIMIT = 4_000_000 * 3;

/** Kinds of entries for going back, as their first number when it is no place in the code. */
const RESTORE_REGISTER = -1;
const RESTORE_GROUP = -2;

const lineFeed = 10;

export class Regex {
  readonly #program: Program;
  #stack = new Int32Array(3 * 64);
  readonly #heights: Int32Array;
  readonly #starts: Int32Array;
  readonly #groups: Int32Array;

  /** PatternError for patterns that are not supported. */
  constructor(source: string) {
    this.#program = compile(new PatternParser(source).parse());
    this.#heights = new Int32Array(this.#program.registers);
    this.#starts = new Int32Array(this.#program.registers);
    this.#groups = new Int32Array(this.#program.groups * 2);
  }

  /**
   * Calls `found` with the beginning and end of each match in a well-formed text. As in Rust's `onig`, a match of
   * nothing right behind the last match does not count.
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

  /** End of a match that begins at a place, -1 without. */
  #matchAt(text: string, start: number, searchStart: number, work: Work): number {
    const { code, sets } = this.#program;
    const { length } = text;
    const heights = this.#heights;
    const starts = this.#starts;
    let height = 0;
    let pc = 0;
    let at = start;
    let steps = 0;
    if (this.#groups.length > 2) this.#groups.fill(-1);
    for (;;) {
      if (++steps === 10_000) {
        work.add(steps);
        steps = 0;
      }
      let ok = true;
      switch (code[pc]) {
        case Op.match:
          work.add(steps);
          return at;
        case Op.character: {
          const codePoint = code[pc + 1]!;
          ok = at < length && text.codePointAt(at) === codePoint;
          at += codePoint > 0xffff ? 2 : 1;
          pc += 2;
          break;
        }
        case Op.set: {
          const codePoint = at < length ? text.codePointAt(at)! : -1;
          ok = codePoint >= 0 && sets[code[pc + 1]!]!.has(codePoint);
          at += codePoint > 0xffff ? 2 : 1;
          pc += 2;
          break;
        }
        case Op.jump:
          pc = code[pc + 1]!;
          break;
        case Op.split:
          height = this.#push(work, height, code[pc + 2]!, at, -1);
          pc = code[pc + 1]!;
          break;
        case Op.branch:
          if (at < length && sets[code[pc + 1]!]!.has(text.codePointAt(at)!)) {
            height = this.#push(work, height, code[pc + 2]!, at, -1);
            pc += 3;
          } else pc = code[pc + 2]!;
          break;
        case Op.many: {
          const set = sets[code[pc + 1]!]!;
          const least = code[pc + 2]!;
          const most = code[pc + 3]!;
          let count = 0;
          let enough = at;
          while (count !== most && at < length) {
            const codePoint = text.codePointAt(at)!;
            if (!set.has(codePoint)) break;
            at += codePoint > 0xffff ? 2 : 1;
            if (++count === least) enough = at;
          }
          steps += count >> 3;
          if (steps >= 10_000) {
            work.add(steps);
            steps = 0;
          }
          ok = count >= least;
          const isPossessive = code[pc + 4] === 1;
          pc += 5;
          if (ok && !isPossessive && at > enough) height = this.#push(work, height, pc, at, enough);
          break;
        }
        case Op.place:
          ok = isAt(code[pc + 1]!, text, at, searchStart);
          pc += 2;
          break;
        case Op.enter: {
          const register = code[pc + 1]!;
          heights[register] = height;
          starts[register] = at;
          pc += 2;
          break;
        }
        case Op.leave: {
          const register = code[pc + 1]!;
          height = heights[register]!;
          if (code[pc + 2] === 1) at = starts[register]!;
          pc += 3;
          break;
        }
        case Op.enterNot: {
          const register = code[pc + 1]!;
          heights[register] = height;
          starts[register] = at;
          height = this.#push(work, height, code[pc + 2]!, at, -1);
          pc += 3;
          break;
        }
        case Op.failNot:
          height = heights[code[pc + 1]!]!;
          ok = false;
          break;
        case Op.back: {
          let count = code[pc + 1]!;
          for (; count > 0 && at > 0; count--) at -= previousLength(text, at);
          ok = count === 0;
          pc += 2;
          break;
        }
        case Op.same:
          ok = at === starts[code[pc + 1]!];
          pc += 2;
          break;
        case Op.round: {
          const register = code[pc + 1]!;
          height = this.#push(work, height, RESTORE_REGISTER, register, starts[register]!);
          starts[register] = at;
          pc += 2;
          break;
        }
        case Op.progress:
          pc = at === starts[code[pc + 1]!] ? code[pc + 2]! : pc + 3;
          break;
        case Op.keep: {
          const slot = code[pc + 1]!;
          height = this.#push(work, height, RESTORE_GROUP, slot, this.#groups[slot]!);
          this.#groups[slot] = at;
          pc += 2;
          break;
        }
        default: {
          const group = code[pc + 1]!;
          const [from, to] = [this.#groups[group * 2]!, this.#groups[group * 2 + 1]!];
          ok = from >= 0 && to >= from && text.startsWith(text.slice(from, to), at);
          steps += to - from;
          at += to - from;
          pc += 2;
        }
      }
      if (ok) continue;
      // Go back to the last place that had another way.
      const stack = this.#stack;
      for (;;) {
        if (height === 0) {
          work.add(steps);
          return -1;
        }
        const target = stack[height - 3]!;
        const first = stack[height - 2]!;
        const second = stack[height - 1]!;
        if (target >= 0) {
          pc = target;
          at = first;
          if (second < 0) height -= 3;
          else {
            at -= previousLength(text, at);
            if (at > second) stack[height - 2] = at;
            else height -= 3;
          }
          break;
        }
        height -= 3;
        if (target === RESTORE_REGISTER) starts[first] = second;
        else this.#groups[first] = second;
      }
    }
  }

  #push(work: Work, height: number, target: number, first: number, second: number): number {
    if (height + 3 > this.#stack.length) {
      if (height >= STACK_LIMIT) throw work.outOfMemory();
      const stack = new Int32Array(this.#stack.length * 2);
      stack.set(this.#stack);
      this.#stack = stack;
    }
    this.#stack[height] = target;
    this.#stack[height + 1] = first;
    this.#stack[height + 2] = second;
    return height + 3;
  }
}

/** A pattern as an error shows it. */
export function shownPattern(source: string): string {
  return JSON.stringify(source.length > 60 ? `${source.slice(0, 57)}...` : source);
}

/** UTF-16 units of the character at a place; 1 at the end. */
function characterLength(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  return unit >= 0xd800 && unit < 0xdc00 ? 2 : 1;
}

function previousLength(text: string, at: number): number {
  const unit = text.charCodeAt(at - 1);
  return unit >= 0xdc00 && unit < 0xe000 ? 2 : 1;
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && wordCharacter.has(text.codePointAt(at)!);
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
      return isEnd ? !afterLine : at === text.length - 1 && text.charCodeAt(at) === lineFeed;
    case "lineStart":
      return at === 0 || (afterLine && !isEnd);
    case "lineEnd":
      return isEnd ? !afterLine : text.charCodeAt(at) === lineFeed;
    case "searchStart":
      return at === searchStart;
    default: {
      const before = at > 0 && isWordAt(text, at - previousLength(text, at));
      return (before !== isWordAt(text, at)) === (places[place] === "wordEdge");
    }
  }
}

export { PatternError };
