/** Coding agents, started by `lowbit launch` on a server: question, call, result, another question, new conversation. */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serveModels } from "../../dist/server/index.js";
import { main, run } from "../serve/process.js";
import { agentClients } from "./clients.js";
import { force, loadForcedModel } from "./forced-model.js";

const folder = mkdtempSync(join(tmpdir(), "lowbit-agents-"));
const project = join(folder, "project");
const file = join(project, "calc.py");
const CONTENT = "def add(a, b):\n    return a + b  # marked 7391\n";
const ANSWER = "It adds two numbers.";
/** Folders of programs, by the names of clients; those that could not be installed are absent. */
const programs = JSON.parse(process.env.AGENT_PROGRAMS ?? "{}");
const clients = agentClients.filter(({ name }) => programs[name]);
const templates = JSON.parse(process.env.AGENT_TEMPLATES ?? '["qwen2.5"]');
mkdirSync(project);
writeFileSync(file, CONTENT);
writeFileSync(join(project, "CLAUDE.md"), "Write docstrings.\n");
// Agents tell the model what is changed in a repository, which is other in each conversation.
const git = (...argv) =>
  spawnSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...argv], { cwd: project });
for (const argv of [["init"], ["add", "."], ["commit", "-m", "First"]]) git(...argv);
afterAll(() => rmSync(folder, { recursive: true }));

let model;
let server;
let asked;
const lines = [];

async function start(template) {
  model = await loadForcedModel(join(folder, `model-${template}`), template);
  asked = force(model, { file, text: ANSWER });
  const log = (line) => lines.push(JSON.parse(line));
  const source = { name: "coder", bytes: 0, load: async () => model };
  server = await serveModels({ models: [source], port: 0, page: false, log });
  await server.ready;
}

async function stop() {
  await server.close();
  await model.dispose();
}

/** Runs a client, and gives what it said, what the model was asked and the lines of the log. */
async function launch(name, argv) {
  const home = join(folder, `home-${name}-${new URL(server.url).port}`);
  mkdirSync(home, { recursive: true });
  const [wasAsked, wasLogged] = [asked.length, lines.length];
  const env = {
    ...process.env,
    ...{ HOME: home, XDG_CONFIG_HOME: join(home, "config"), XDG_DATA_HOME: join(home, "data") },
    ...{ XDG_CACHE_HOME: join(home, "cache"), XDG_STATE_HOME: join(home, "state"), LOWBIT_CACHE: join(home, "lowbit") },
    ...{ PATH: programs[name] + delimiter + process.env.PATH, PWD: project, IS_SANDBOX: "1", CI: "1", NO_COLOR: "1" },
  };
  const command = [main, "launch", name, "--url", server.url, "--", ...argv];
  const { code, output } = await run(process.execPath, command, { cwd: project, env, timeout: 240_000 });
  const log = lines.slice(wasLogged).filter(({ promptTokens }) => promptTokens > 0);
  return { code, output, asked: asked.slice(wasAsked), log, statuses: lines.slice(wasLogged) };
}

/** Requests that carry the conversation: clients ask for titles and summaries beside it. */
function turnsOf(log) {
  const most = Math.max(...log.map(({ promptTokens }) => promptTokens));
  return log.filter(({ promptTokens }) => promptTokens > most / 2);
}

const results = (said) => said.flatMap(({ messages }) => messages.filter(({ role }) => role === "tool"));

describe.each(templates)("with the template %s", (template) => {
  beforeAll(() => start(template));
  afterAll(stop);

  describe.each(clients)("$name", ({ name, first, next, other, hasTools = true, otherShare = 0.92 }) => {
    let tokens;
    it("asks, calls a tool, and reads its result, which computes what is new alone", async () => {
      const { code, output, log, asked: said, statuses } = await launch(name, first);
      expect([code, output]).toEqual([0, expect.stringContaining(ANSWER)]);
      expect(statuses.filter(({ status, path }) => status >= 400 && path.startsWith("/v1/"))).toEqual([]);
      const turns = turnsOf(log);
      tokens = turns[0].promptTokens;
      console.log(
        `${name}: ${turns.map(({ promptTokens, cachedTokens }) => `${cachedTokens} of ${promptTokens}`).join(", ")}`,
      );
      if (!hasTools) return;
      expect(said.some(({ call }) => call !== null)).toBe(true);
      expect(JSON.stringify(results(said))).toContain("7391");
      expect(turns[1].cachedTokens / tokens).toBeGreaterThanOrEqual(0.99);
    });

    it.skipIf(next === null)("goes on with the conversation", async () => {
      const { code, log } = await launch(name, next);
      expect(code).toBe(0);
      const [turn] = turnsOf(log);
      console.log(`${name}, another question: ${turn.cachedTokens} of ${turn.promptTokens}`);
      if (hasTools) expect(turn.cachedTokens / tokens).toBeGreaterThanOrEqual(0.92);
    });

    it("begins a new one with what it has in common, after files have changed", async () => {
      writeFileSync(join(project, `changed-${name}-${template}.py`), "");
      const { code, log } = await launch(name, other);
      expect(code).toBe(0);
      const [turn] = turnsOf(log);
      console.log(`${name}, another conversation: ${turn.cachedTokens} of ${turn.promptTokens}`);
      if (hasTools) expect(turn.cachedTokens / turn.promptTokens).toBeGreaterThanOrEqual(otherShare);
    });
  });
});
