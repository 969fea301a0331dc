/** Tools of MCP servers for a conversation: local programs (stdio) or URLs. */
import { readFile } from "node:fs/promises";
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { InvalidFileError, UnsupportedError } from "../index.ts";
import { type ExecutableTool, type McpClient, mcpTools, version } from "../tools/index.ts";
import { UsageError } from "./usage-error.ts";

/** Connected servers and their tools. */
export interface McpTools {
  readonly tools: readonly ExecutableTool[];
  close(): Promise<void>;
}

/** A server, as in `mcpServers` of MCP clients' configs. */
interface ServerConfig {
  readonly name: string;
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

type Sdk = Awaited<ReturnType<typeof importSdk>>;

const NAME_MAX = 128;

async function importSdk() {
  try {
    const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] = await Promise.all([
      import("@modelcontextprotocol/sdk/client/index.js"),
      import("@modelcontextprotocol/sdk/client/stdio.js"),
      import("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    ]);
    return { Client, StdioClientTransport, StreamableHTTPClientTransport };
  } catch (cause) {
    throw new UnsupportedError("tools of MCP servers need the package @modelcontextprotocol/sdk; npm install it", {
      cause,
    });
  }
}

/**
 * Connects to servers, each given as a config file (`.json`, with `mcpServers`), a URL, or a command line. UsageError for
 * anything else, UnsupportedError for a server that cannot be reached.
 */
export async function openMcpTools(given: readonly string[], signal?: AbortSignal): Promise<McpTools> {
  const configs = (await Promise.all(given.map((one, i) => configsOf(one, i)))).flat();
  const sdk = await importSdk();
  const clients: Client[] = [];
  const close = async () => {
    await Promise.all(clients.map((client) => client.close()));
  };
  const tools = new Map<string, ExecutableTool>();
  try {
    for (const config of configs) {
      const client = await connect(config, sdk, signal);
      clients.push(client);
      for (const tool of await mcpTools(client as unknown as McpClient, config.name)) {
        const name = tools.has(tool.name) ? `${config.name}__${tool.name}`.slice(-NAME_MAX) : tool.name;
        if (tools.has(name)) throw new UsageError(`--mcp: expected tools that differ but found ${name} twice`);
        tools.set(name, { ...tool, name });
      }
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { tools: [...tools.values()], close };
}

async function configsOf(given: string, index: number): Promise<ServerConfig[]> {
  if (given.endsWith(".json")) return configsIn(given);
  if (/^https?:\/\//.test(given)) return [{ name: `server${index + 1}`, url: given }];
  // Words of a command line; those with blanks are in quotation marks.
  const words = Array.from(given.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g), ([, a, b, c]) => a ?? b ?? c ?? "");
  const [command, ...args] = words;
  if (command === undefined) throw new UsageError("--mcp: expected a command, an address or a .json file");
  return [{ name: `server${index + 1}`, command, args }];
}

async function configsIn(file: string): Promise<ServerConfig[]> {
  const text = await readFile(file, "utf8");
  let servers: unknown;
  try {
    servers = (JSON.parse(text) as { mcpServers?: unknown } | null)?.mcpServers;
  } catch (cause) {
    throw new InvalidFileError(file, "expected JSON", { cause });
  }
  if (typeof servers !== "object" || servers === null) throw new InvalidFileError(file, "expected mcpServers");
  return Object.entries(servers).map(([name, config]: [string, Partial<ServerConfig> | null]) => {
    const { command, url, args = [], env = {}, headers = {} } = config ?? {};
    const isWhole = (typeof command === "string") !== (typeof url === "string") && Array.isArray(args);
    if (!isWhole) throw new InvalidFileError(file, `mcpServers.${name}: expected a command with args, or a url`);
    return { name, ...(command !== undefined && { command }), ...(url !== undefined && { url }), args, env, headers };
  });
}

async function connect(config: ServerConfig, sdk: Sdk, signal: AbortSignal | undefined): Promise<Client> {
  const client = new sdk.Client({ name: "lowbit", version });
  try {
    // The package's own types contradict each other under exactOptionalPropertyTypes.
    const transport = transportOf(config, sdk) as unknown as Transport;
    await client.connect(transport, { ...(signal && { signal }) });
    return client;
  } catch (cause) {
    await client.close().catch(() => {});
    const where = config.url ?? config.command;
    throw new UnsupportedError(`MCP server ${where}: cannot be reached: ${(cause as Error).message}`, { cause });
  }
}

function transportOf({ command, args = [], env = {}, url, headers = {} }: ServerConfig, sdk: Sdk) {
  if (url !== undefined)
    return new sdk.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { ...headers } } });
  // Servers get the basic environment, such as PATH, and nothing more: no keys of ours.
  return new sdk.StdioClientTransport({
    command: command!,
    args: [...args],
    env: { ...inherited(), ...env },
    stderr: "ignore",
  });
}

function inherited(): Record<string, string> {
  const names = ["PATH", "HOME", "LANG", "SHELL", "TERM", "USER", "SystemRoot", "APPDATA", "TEMP", "TMPDIR"];
  return Object.fromEntries(names.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
}
