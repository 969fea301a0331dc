/** Times with a leap second: it follows the last minute of a day in UTC, which is another minute in other time zones. */
import type { Automaton, Edge } from "./automaton.ts";
import type { Range } from "./code-points.ts";

const MINUTES = 1440;
const DIGITS: readonly Range[] = [[0x30, 0x39]];

/** Automaton of RFC 3339 times with second 60 and an offset; each state within the seconds knows the minute of the day. */
export function leapSeconds(): Automaton {
  const edges: Edge[][] = [];
  const accepts: boolean[] = [];
  const byText = new Map<string, number>();
  const state = () => {
    accepts.push(false);
    return edges.push([]) - 1;
  };
  const link = (from: number, character: string, to: number) => {
    const point = character.charCodeAt(0);
    edges[from]!.push({ ranges: [[point, point]], to });
  };
  /** The state from which only this text is left. */
  const left = (text: string): number => {
    const known = byText.get(text);
    if (known !== undefined) return known;
    const made = state();
    byText.set(text, made);
    if (text === "") accepts[made] = true;
    else link(made, text[0]!, left(text.slice(1)));
    return made;
  };
  /** The state after reading this text from the start, by the text. */
  const heads = new Map<string, number>([["", state()]]);
  const behind = (text: string): number => {
    const known = heads.get(text);
    if (known !== undefined) return known;
    const made = state();
    heads.set(text, made);
    link(behind(text.slice(0, -1)), text.at(-1)!, made);
    return made;
  };
  for (let minute = 0; minute < MINUTES; minute++) {
    const whole = behind(`${clock(minute)}:60`);
    const point = state();
    const fraction = state();
    link(whole, ".", point);
    for (const from of [point, fraction]) edges[from]!.push({ ranges: DIGITS, to: fraction });
    const ahead = (minute + 1) % MINUTES;
    for (const from of [whole, fraction]) {
      link(from, "+", left(clock(ahead)));
      link(from, "-", left(clock((MINUTES - ahead) % MINUTES)));
      if (ahead === 0) for (const letter of "zZ") link(from, letter, left(""));
    }
  }
  return { starts: [0], edges, accepts };
}

function clock(minutes: number): string {
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}
