/**
 * Calls every function with arguments of wrong types, one at a time, and tells what it threw: programs without types give
 * anything. Nothing that is thrown may be an error of the engine, such as a TypeError.
 */
import { InvalidArgumentError, LowbitError } from "../../src/errors.ts";

/** One function with arguments that are right, and the places of them that are given others. */
export interface Swept {
  readonly name: string;
  /** Calls the function; what it gives is read to its end where it streams. */
  readonly call: (...given: never[]) => unknown;
  /** Right arguments, of which one at a time is replaced. */
  readonly given: () => readonly unknown[] | Promise<readonly unknown[]>;
  /** What errors call the arguments, as regular expressions; null for those that are not replaced. */
  readonly names: readonly (string | null)[];
  /** Names of options, which the last argument has, and what else errors call them. */
  readonly options?: readonly string[];
}

/** Lists in each other, more of them than functions that call themselves can read. */
const DEEP = Array.from({ length: 20_000 }).reduce<unknown>((inner) => [inner], null);

/** Wrong values of most types; some are right for some arguments. */
export const WRONG: readonly (readonly [string, unknown])[] = [
  ["null", null],
  ["a number", 5],
  ["NaN", Number.NaN],
  ["a negative number", -1],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["a text", "odd"],
  ["an object", {}],
  ["a list", []],
  ["a list of odd things", [null, 1n, "x"]],
  ["a list of 20,000 levels", DEEP],
  ["an object of 20,000 levels", { x: DEEP }],
  ["a BigInt", 1n],
  ["a symbol", Symbol("odd")],
  ["a function", () => 1],
  ["true", true],
];

async function consume(result: unknown): Promise<unknown> {
  const value = await result;
  if (typeof value !== "object" || value === null || !(Symbol.asyncIterator in value)) return value;
  for await (const _ of value as AsyncIterable<unknown>);
  return "result" in value ? value.result : value;
}

/** What the call of a function with wrong arguments showed to be wrong with the function; null for nothing. */
async function problemOf(swept: Swept, given: readonly unknown[], name: string): Promise<string | null> {
  try {
    await consume(swept.call(...(given as never[])));
    return null;
  } catch (error) {
    if (!(error instanceof LowbitError))
      return `${error instanceof Error ? error.stack?.split("\n").slice(0, 4).join(" ") : String(error)}`;
    if (error instanceof InvalidArgumentError && !new RegExp(name).test(error.message))
      return `does not name it: ${error.message}`;
    return null;
  }
}

/** All that is wrong with how functions take wrong arguments, a line each, and how many calls there were. */
export async function sweep(functions: readonly Swept[]): Promise<{ calls: number; problems: string[] }> {
  const problems: string[] = [];
  let calls = 0;
  const note = async (swept: Swept, given: readonly unknown[], name: string, kind: string) => {
    calls++;
    const problem = await problemOf(swept, given, name);
    if (problem !== null) problems.push(`${swept.name}, ${name} ${kind}: ${problem}`);
  };
  for (const swept of functions) {
    for (const [i, name] of swept.names.entries())
      for (const [kind, value] of name === null ? [] : WRONG)
        await note(swept, (await swept.given()).toSpliced(i, 1, value), name!, kind);
    for (const option of swept.options ?? [])
      for (const [kind, value] of WRONG) {
        const given = await swept.given();
        const [key = ""] = option.split("|");
        await note(swept, [...given.slice(0, -1), { ...(given.at(-1) as object), [key]: value }], option, kind);
      }
  }
  return { calls, problems };
}
