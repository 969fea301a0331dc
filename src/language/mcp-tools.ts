/** Makes tools of MCP servers tools of a conversation. */
import { checkFields, checkString } from "../arguments.ts";
import { UnsupportedError } from "../errors.ts";
import type { ExecutableTool } from "./conversation-tools.ts";

/** A tool as an MCP server lists it. */
interface ListedTool {
  /** Name of the tool. */
  readonly name: string;
  /** What the tool does, for the model. */
  readonly description?: string | undefined;
  /** JSON schema of its arguments. */
  readonly inputSchema: object;
}

/** The result of a call of an MCP tool. */
interface CallResult {
  /** Parts, such as texts. */
  readonly content?: unknown;
  /** Structured value, which tools with an output schema give. */
  readonly structuredContent?: unknown;
  /** Whether the tool failed. */
  readonly isError?: unknown;
}

/** The methods of a connected `@modelcontextprotocol/sdk` client that are used. */
export interface McpClient {
  /** Lists tools, from a cursor on. */
  listTools(params: {
    cursor?: string;
  }): Promise<{ readonly tools: readonly ListedTool[]; readonly nextCursor?: string | undefined }>;
  /** Calls a tool. */
  callTool(
    params: { name: string; arguments: Record<string, unknown> },
    schema: undefined,
    options: { signal?: AbortSignal },
  ): Promise<CallResult>;
}

/**
 * Gives the tools of a client's server, which error messages call `server`. UnsupportedError for a tool's name that models
 * cannot read.
 */
export async function mcpTools(client: McpClient, server: string): Promise<ExecutableTool[]> {
  checkFields("client", client, ["listTools", "callTool"], "a client of @modelcontextprotocol/sdk");
  checkString("server", server);
  const found: ExecutableTool[] = [];
  for (let cursor: string | undefined; ; ) {
    const { tools, nextCursor } = await client.listTools(cursor === undefined ? {} : { cursor });
    for (const { name, description, inputSchema } of tools) {
      if (!/^[\w.-]{1,128}$/.test(name))
        throw new UnsupportedError(
          `MCP server ${server}: tool ${JSON.stringify(name)}: expected letters, digits, _, - and .`,
        );
      found.push({
        ...{ name, description, parameters: inputSchema },
        execute: async (args, { signal }) =>
          contentOf(await client.callTool({ name, arguments: args }, undefined, { ...(signal && { signal }) })),
      });
    }
    if (nextCursor === undefined) return found;
    cursor = nextCursor;
  }
}

/** The text of a result; throws where the server says that it is an error. */
function contentOf({ content, structuredContent, isError }: CallResult): string {
  const parts = Array.isArray(content) ? content : [];
  const texts = parts.map((part: { type: string; text?: string; resource?: { text?: string } }) => {
    if (part.type === "text") return part.text ?? "";
    return part.resource?.text ?? `[${part.type} not shown: this model reads no such part]`;
  });
  const text = texts.length > 0 ? texts.join("\n") : JSON.stringify(structuredContent ?? {});
  if (isError) throw new UnsupportedError(text);
  return text;
}
