/** Servers of MCP at addresses: their tools, and what these give. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { type ExecutableTool, type McpClient, mcpTools } from "lowbit/web";

/** Servers by address, once they were reached. */
const servers = new Map<string, Promise<readonly ExecutableTool[]>>();

/** The tools of a server. An error where it cannot be reached, which may be tried again. */
export function toolsAt(address: string): Promise<readonly ExecutableTool[]> {
  const known = servers.get(address) ?? connect(address);
  servers.set(address, known);
  known.catch(() => servers.delete(address));
  return known;
}

/** Results are texts for the model: their schemas, which compilers of code would check, count for nothing here. */
const jsonSchemaValidator = {
  getValidator: () => (data: unknown) => ({ valid: true, data, errorMessage: undefined }),
};

async function connect(address: string): Promise<readonly ExecutableTool[]> {
  const client = new Client({ name: "lowbit", version: "0" }, { jsonSchemaValidator: jsonSchemaValidator as never });
  try {
    await client.connect(new StreamableHTTPClientTransport(new URL(address)) as never);
    return await mcpTools(client as unknown as McpClient, address);
  } catch (cause) {
    await client.close().catch(() => {});
    throw new Error(`MCP server ${address}: cannot be reached: ${(cause as Error).message}`, { cause });
  }
}
