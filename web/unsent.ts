/** What was written and not sent, by conversation: there after a reload. */
import { unlessBlocked } from "./dom.ts";

const KEY = "lowbit-unsent";
/** More conversations than so many keep none, and longer texts are not kept. */
const COUNT_MAX = 50;
const LENGTH_MAX = 100_000;

const read = (): [id: string, text: string][] =>
  unlessBlocked(() => JSON.parse(localStorage.getItem(KEY) ?? "[]")) ?? [];

export function keepUnsent(id: string, text: string): void {
  const others = read().filter(([other]) => other !== id);
  const kept = text !== "" && text.length <= LENGTH_MAX ? [...others, [id, text]] : others;
  unlessBlocked(() => localStorage.setItem(KEY, JSON.stringify(kept.slice(-COUNT_MAX))));
}

export const unsentOf = (id: string): string => read().find(([other]) => other === id)?.[1] ?? "";
