/** What was written and not sent, by conversation: there after a reload. */
import { unlessBlocked } from "./dom.ts";

const KEY = "lowbit-unsent";
/** More conversations than so many keep none, and longer texts are not kept. */
const COUNT_MAX = 50;
const LENGTH_MAX = 100_000;

const read = (): [id: string, text: string][] =>
  unlessBlocked(() => JSON.parse(localStorage.getItem(KEY) ?? "[]")) ?? [];

/** Who writes is not kept waiting: what is written is kept in a pause, at the latest when the page is left. */
const PAUSE_MS = 300;
const waiting = new Map<string, string>();
let timer: ReturnType<typeof setTimeout> | undefined;

export function keepUnsent(id: string, text: string): void {
  waiting.set(id, text);
  timer ??= setTimeout(keepNow, PAUSE_MS);
}

function keepNow(): void {
  clearTimeout(timer);
  timer = undefined;
  for (const [id, text] of waiting) write(id, text);
  waiting.clear();
}

addEventListener("pagehide", keepNow);

function write(id: string, text: string): void {
  const others = read().filter(([other]) => other !== id);
  const kept = text !== "" && text.length <= LENGTH_MAX ? [...others, [id, text]] : others;
  unlessBlocked(() => localStorage.setItem(KEY, JSON.stringify(kept.slice(-COUNT_MAX))));
}

export const unsentOf = (id: string): string => waiting.get(id) ?? read().find(([other]) => other === id)?.[1] ?? "";
