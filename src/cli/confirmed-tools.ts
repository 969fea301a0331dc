/** Shows tool calls, and asks the user before those that are not allowed. */
import { UnsupportedError } from "../index.ts";
import type { ExecutableTool } from "../tools/index.ts";

export interface ConfirmOptions {
  /** Names of tools that are called without asking; "*" for all. */
  readonly allowed: readonly string[];
  /** Prints a line for the user. */
  readonly note: (line: string) => void;
  /** Asks the user and gives the answer; null where there is no user. */
  readonly ask: ((question: string, signal: AbortSignal | undefined) => Promise<string>) | null;
}

const SHOWN_MAX = 300;

export function confirmedTools(
  tools: readonly ExecutableTool[],
  { allowed, note, ask }: ConfirmOptions,
): ExecutableTool[] {
  const free = new Set(allowed);
  return tools.map((tool) => ({
    ...tool,
    async execute(args, context) {
      const { name } = tool;
      note(`[${name} ${shown(context.call.arguments)}]`);
      if (!free.has("*") && !free.has(name)) {
        const answer = ask ? await ask(`call ${name}? (y)es, (n)o, (a)lways: `, context.signal) : "";
        const choice = answer.trim().toLowerCase();
        if (/^a(lways)?$/.test(choice)) free.add(name);
        else if (!/^y(es)?$/.test(choice)) {
          note(ask ? "[not called]" : `[not called: --allow-tool ${name} allows it]`);
          throw new UnsupportedError("the user did not allow this call");
        }
      }
      const result = await tool.execute!(args, context);
      note(`[${name}: ${shown(typeof result === "string" ? result : JSON.stringify(result))}]`);
      return result;
    },
  }));
}

/** A text as one line, without control characters. */
function shown(text: string): string {
  const line = text.replace(/[\p{Cc}\p{Cf}]+/gu, " ");
  return line.length > SHOWN_MAX ? `${line.slice(0, SHOWN_MAX)}…` : line;
}
