/** The tools of an answer: the page's own, and those of MCP servers, whose calls the reader allows. */
import type { ExecutableTool, ToolCall } from "lowbit/web";
import { ask } from "./dialog.ts";
import { tools as own, runTool } from "./tools.ts";

export interface Toolbox {
  readonly tools: readonly ExecutableTool[];
  /** What a call gives the model. */
  run(call: ToolCall, signal: AbortSignal): Promise<string>;
}

/** Tools of servers whose calls are allowed from now on, by address and name. */
const allowed = new Set<string>();

const ARGUMENTS_MAX = 2000;

/** `addresses`: those of MCP servers. An error for one that cannot be reached, or tools of one name. */
export async function openToolbox(hasOwn: boolean, addresses: readonly string[]): Promise<Toolbox> {
  const byName = new Map<string, { readonly tool: ExecutableTool; readonly address: string }>();
  if (addresses.length > 0) {
    const { toolsAt } = await import("./mcp.ts");
    for (const address of addresses)
      for (const tool of await toolsAt(address)) {
        if (byName.has(tool.name))
          throw new Error(`MCP servers: expected tools that differ but found ${tool.name} twice`);
        byName.set(tool.name, { tool, address });
      }
  }
  const pages = hasOwn ? own.filter(({ name }) => !byName.has(name)) : [];
  return {
    tools: [...pages, ...[...byName.values()].map(({ tool }) => withoutFunction(tool))],
    async run(call, signal) {
      const found = byName.get(call.name);
      if (!found) return runTool(call.name, call.arguments);
      if (!(await isAllowed(call, found.address))) return "Error: the user refused this call";
      signal.throwIfAborted();
      try {
        const args = call.arguments.trim() === "" ? {} : JSON.parse(call.arguments);
        return `${await found.tool.execute!(args, { call, signal })}`;
      } catch (error) {
        signal.throwIfAborted();
        return `Error: ${(error as Error).message}`;
      }
    },
  };
}

/** As workers are told of it. */
function withoutFunction({ name, description, parameters }: ExecutableTool): ExecutableTool {
  return { name, description, parameters };
}

async function isAllowed({ name, arguments: text }: ToolCall, address: string): Promise<boolean> {
  const tool = `${address} ${name}`;
  if (allowed.has(tool)) return true;
  const shown = text.length > ARGUMENTS_MAX ? `${text.slice(0, ARGUMENTS_MAX)}…` : text;
  const title = `Run ${name}?`;
  const answer = await ask({
    title,
    text: `${address} is given ${shown || "{}"}`,
    action: "Run",
    always: "Always run",
  });
  if (answer === "always") allowed.add(tool);
  return answer !== null;
}
