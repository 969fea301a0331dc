/** Tools of MCP servers in conversations: as the servers have them, shown, and asked for. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { tinyModel } from "../../test/support/served.ts";
import { toolTemplate, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { InvalidFileError, UnsupportedError } from "../index.ts";
import { confirmedTools } from "./confirmed-tools.ts";
import { openMcpTools } from "./mcp-tools.ts";
import { UsageError } from "./usage-error.ts";

const script = fileURLToPath(new URL("../../test/support/mcp-server.js", import.meta.url));
const command = `"${process.execPath}" '${script}'`;
const folder = await temporaryFolder();
const call = (name: string, args: object) => ({ id: "call_1", name, arguments: JSON.stringify(args) });

let http: ChildProcess;
let address: string;
beforeAll(async () => {
  http = spawn(process.execPath, [script, "--http"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(http.stdout!, "data");
  address = String(line).trim();
});
afterAll(() => void http.kill());

function config(servers: unknown): string {
  const file = join(folder, `mcp-${Math.random()}.json`);
  writeFileSync(file, typeof servers === "string" ? servers : JSON.stringify({ mcpServers: servers }));
  return file;
}

describe("tools of MCP servers", () => {
  it("are those that servers list, and are called there", async () => {
    vi.stubEnv("LOWBIT_API_KEYS", "sk-secret");
    const env = { MCP_TEST: "rain" };
    const local = { command: process.execPath, args: [script], env };
    const far = { url: address, headers: { "x-secret": "open" } };
    const mcp = await openMcpTools([config({ local, far }), command]);
    vi.unstubAllEnvs();
    const names = ["weather", "now", "far__weather", "far__now", "server2__weather", "server2__now"];
    expect(mcp.tools.map(({ name }) => name)).toEqual(names);
    expect(mcp.tools[0]).toMatchObject({
      ...{ description: "The weather of a city." },
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    });
    const run = (index: number, args: Record<string, unknown>) =>
      mcp.tools[index]!.execute!(args, { call: call(names[index]!, args), signal: undefined });
    const unseen = "[image not shown: this model reads no such part]";
    expect(await run(0, { city: "Rome" })).toBe(`Rome: grey, rain\n${unseen}`);
    expect(await run(2, { city: "Rome" })).toBe(`Rome: grey, no variable\n${unseen}`);
    expect(await run(5, { zone: "UTC" })).toBe("noon");
    await expect(run(4, { city: "Atlantis" })).rejects.toThrow("there is no such city");
    await expect(run(0, { town: 3 })).rejects.toThrow(/city/);
    await mcp.close();
  });

  it.each([
    ["", UsageError, /expected a command/],
    ["no-such-command-here --x", UnsupportedError, /MCP server no-such-command-here: cannot be reached/],
    ["http://127.0.0.1:9/mcp", UnsupportedError, /MCP server http:\/\/127\.0\.0\.1:9\/mcp: cannot be reached/],
    [config("{"), InvalidFileError, /expected JSON/],
    [config({ a: { args: [] } }), InvalidFileError, /mcpServers\.a: expected a command with args, or a url/],
    [config('{"servers":{}}'), InvalidFileError, /expected mcpServers/],
  ])("say what is wrong with %j", async (given, type, message) => {
    const error = await openMcpTools([given]).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(type);
    expect(error.message).toMatch(message);
  });
});

describe("calls", () => {
  const made = (answers: readonly string[] | null, allowed: readonly string[] = []) => {
    const notes: string[] = [];
    const asked: string[] = [];
    const ran: unknown[] = [];
    const given = answers?.values();
    const tool = { name: "say", execute: (args: object) => ran.push(args) && "said\u001b[2J" };
    const ask = async (question: string) => {
      asked.push(question);
      return given!.next().value!;
    };
    const options = { allowed, note: (line: string) => notes.push(line), ask: given ? ask : null };
    const [asking] = confirmedTools([tool], options);
    const execute = () => asking!.execute!({ a: 1 }, { call: call("say", { a: 1 }), signal: undefined });
    return { execute, notes, asked, ran };
  };

  it("are shown, and made when the user says so, once or always", async () => {
    const { execute, notes, asked, ran } = made(["y", "", "Always"]);
    expect(await execute()).toBe("said\u001b[2J");
    await expect(execute()).rejects.toThrow("did not allow");
    await execute();
    await execute();
    expect([asked.length, ran.length]).toEqual([3, 3]);
    expect(notes.slice(0, 2)).toEqual(['[say {"a":1}]', "[say: said [2J]"]);
  });

  it("are made without asking where they are allowed, and never where nobody can be asked", async () => {
    for (const allowed of [["say"], ["*"]]) expect(await made(null, allowed).execute()).toContain("said");
    const { execute, notes, ran } = made(null, ["other"]);
    await expect(execute()).rejects.toThrow("did not allow");
    expect([ran, notes.at(-1)]).toEqual([[], "[not called: --allow-tool say allows it]"]);
  });

  it("of a model go to the server, and their results to the model", async () => {
    const llm = await tinyModel({ chatTemplate: toolTemplate, contextLength: 1024 });
    const mcp = await openMcpTools([command]);
    const tools = confirmedTools(mcp.tools, { allowed: ["now"], note: () => {}, ask: null });
    const chat = llm.createConversation({ tools });
    const options = { toolChoice: { name: "now" }, thinking: false, maxTokens: 300, maxToolRounds: 1 };
    await chat.send("What time is it?", options).result;
    expect(chat.messages).toContainEqual(expect.objectContaining({ role: "tool", content: "noon", name: "now" }));
    await mcp.close();
    await llm.dispose();
  });
});

it("`lowbit chat` tells of the tools, and of models that take none", async () => {
  await writeTinyCheckpoint(join(folder, "tools"), {
    chatTemplate: toolTemplate,
    config: { max_position_embeddings: 512 },
  });
  await writeTinyCheckpoint(join(folder, "none"), { config: { max_position_embeddings: 512 } });
  const chat = (model: string) =>
    lowbit(["chat", join(folder, model), "--mcp", command, "-n", "3", "--no-cache-disk"], { stdin: "Hello\n" });
  expect(await chat("tools")).toMatchObject({ code: 0, stderr: expect.stringContaining("tools: weather, now\n") });
  expect(await chat("none")).toMatchObject({ code: 1, stderr: expect.stringContaining("chat template has none") });
});
