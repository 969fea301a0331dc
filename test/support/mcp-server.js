/** An MCP server of two tools: over its input and output, or, with `--http`, at an address that it prints; with `--open` for any page. */
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function server() {
  const made = new McpServer({ name: "test", version: "1.0.0" });
  const city = { city: z.string() };
  made.registerTool("weather", { description: "The weather of a city.", inputSchema: city }, ({ city }) => {
    if (city === "Atlantis") throw new Error("there is no such city");
    const image = { type: "image", data: "iVBO", mimeType: "image/png" };
    return { content: [{ type: "text", text: `${city}: grey, ${process.env.MCP_TEST ?? "no variable"}` }, image] };
  });
  const zone = { zone: z.enum(["UTC"]) };
  const noon = { content: [{ type: "text", text: "noon" }] };
  made.registerTool("now", { description: "The time.", inputSchema: zone }, () => noon);
  return made;
}

if (process.argv.includes("--http")) {
  const isOpen = process.argv.includes("--open");
  const http = createServer(async (request, response) => {
    for (const name of isOpen ? ["origin", "headers", "methods"] : [])
      response.setHeader(`access-control-allow-${name}`, "*");
    if (isOpen && request.method === "OPTIONS") return response.writeHead(204).end();
    if (!isOpen && request.headers["x-secret"] !== "open") return response.writeHead(401).end();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    await server().connect(transport);
    await transport.handleRequest(request, response);
  });
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
} else await server().connect(new StdioServerTransport());
