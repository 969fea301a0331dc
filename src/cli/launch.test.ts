/** `lowbit launch` with a client of the test: what it is told, and what is said where something is missing. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { tinyModel, tinySource } from "../../test/support/served.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { type RunningServer, serveModels } from "../server/listen.ts";
import { launchClients } from "./launch-clients.ts";

const root = await temporaryFolder();
const bin = join(root, "bin");
const home = join(root, "home");
const seen = join(root, "seen.json");
let server: RunningServer;
let locked: RunningServer;
beforeAll(async () => {
  mkdirSync(bin);
  mkdirSync(home);
  // A client that notes how it was started, asks the server for its models, and ends with a code of its own.
  const client = `#!${process.execPath}
const { ANTHROPIC_BASE_URL, OPENAI_BASE_URL } = process.env;
const asked = fetch((ANTHROPIC_BASE_URL ?? OPENAI_BASE_URL.slice(0, -3)) + "/v1/models").then((answer) => answer.json());
asked.then(({ data }) => {
  const { argv, env } = process;
  require("node:fs").writeFileSync(${JSON.stringify(seen)}, JSON.stringify({ argv: argv.slice(2), env, data }));
  process.exit(7);
});`;
  for (const name of ["claude", "qwen"]) writeFileSync(join(bin, name), client, { mode: 0o755 });
  const llm = await tinyModel();
  server = await serveModels({ models: [tinySource(llm, "org/tiny")], port: 0, page: false });
  locked = await serveModels({ models: [tinySource(llm)], preload: [], port: 0, page: false, keys: ["sk-a"] });
  await server.ready;
});
afterAll(async () => {
  await server.close();
  await locked.close();
});

/** Runs the command with the client on the PATH, and nothing else. */
async function launch(argv: readonly string[], env: Record<string, string> = {}) {
  const all = { PATH: bin, HOME: home, LOWBIT_CACHE: join(root, "cache"), ANTHROPIC_API_KEY: "sk-mine", ...env };
  for (const [name, value] of Object.entries(all)) vi.stubEnv(name, value);
  try {
    return await lowbit(["launch", ...argv]);
  } finally {
    vi.unstubAllEnvs();
  }
}

const told = () => JSON.parse(readFileSync(seen, "utf8"));

describe("lowbit launch", () => {
  it("starts a client on a server that runs, with arguments of its own, and ends as it does", async () => {
    const result = await launch(["claude", "--url", `${server.url}/`, "--", "-p", "Hi --there"]);
    expect([result.code, result.stderr]).toEqual([7, expect.stringContaining("context of 512, which is short")]);
    const { argv, env, data } = told();
    expect(argv).toEqual(["-p", "Hi --there"]);
    expect(env).toMatchObject({
      ...{ ANTHROPIC_BASE_URL: server.url, ANTHROPIC_MODEL: "org/tiny", ANTHROPIC_DEFAULT_HAIKU_MODEL: "org/tiny" },
      CLAUDE_CODE_AUTO_COMPACT_WINDOW: "512",
    });
    expect(env).not.toHaveProperty("ANTHROPIC_API_KEY");
    expect(data[0].id).toBe("org/tiny");
    expect(readdirSync(home)).toEqual([]);
  });

  it("runs a server for as long as the client does", async () => {
    const folder = join(root, "mine");
    await writeTinyCheckpoint(folder);
    const { code } = await launch(["qwen", "--model", folder, "--no-cache-disk"]);
    const { argv, env, data } = told();
    expect([code, argv, data[0].id]).toEqual([7, ["--auth-type", "openai", "--model", "mine"], "mine"]);
    await expect(fetch(`${env.OPENAI_BASE_URL}/models`)).rejects.toThrow();
  });

  it.each(Object.keys(launchClients))("tells %s the address, the model and its context", async (name) => {
    const { code, stdout } = await launch([name, "--url", server.url, "--dry-run"]);
    const { command, argv, env, files = {} } = JSON.parse(stdout);
    expect([code, command]).toEqual([0, launchClients[name]!.command]);
    const all = JSON.stringify([argv, env, files]);
    for (const part of [server.url, "org/tiny", "lowbit"]) expect(all).toContain(part);
    if (!["qwen", "cline", "llm"].includes(name)) expect(all).toContain("512");
    for (const [file, text] of Object.entries(files))
      expect(readFileSync(join(root, "cache/launch", name, file), "utf8")).toBe(text);
    expect(existsSync(home) && readdirSync(home)).toEqual([]);
  });

  it("takes a key from its variable", async () => {
    const asked = ["codex", "--url", locked.url, "--dry-run"];
    const { stdout } = await launch(asked, { LOWBIT_API_KEY: "sk-a" });
    expect(JSON.parse(stdout).env).toEqual({ LOWBIT_LAUNCH_KEY: "sk-a" });
    const refused = await launch(asked, { LOWBIT_API_KEY: "sk-b" });
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("asks for a key")]);
  });

  it.each([
    [["codex", "--model", "x"], "Codex is not installed: `codex` is not on the PATH; npm install -g @openai/codex", 1],
    [["emacs"], "emacs: expected one of claude, codex, opencode", 2],
    [["claude", "--url", "URL", "--model", "big"], "expected one of org/tiny but found big", 2],
    [["claude", "--url", "http://127.0.0.1:9"], "http://127.0.0.1:9: no server answers", 2],
    [["claude", "--model", "nothing.pte"], "nothing.pte: expected a file, a folder or hf:org/name", 2],
  ])("says what is missing for %j", async (argv, message, code) => {
    const result = await launch(argv.map((word) => (word === "URL" ? server.url : word)));
    expect([result.code, result.stderr]).toEqual([code, expect.stringContaining(message)]);
  });
});
