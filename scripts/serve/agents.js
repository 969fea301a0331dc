/**
 * `npm run test:agents [-- --template gemma-4 name ...]`: coding agents (Claude Code, Codex, opencode and others,
 * test/agents/clients.js), started by `lowbit launch` on a server whose model calls their tools, with some templates of
 * test/templates, or those of `--template` (a name, or all). Installs them from npm and PyPI in `~/.cache/lowbit-tests/agents`,
 * some 2 GB; one that cannot be installed is named and left out.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { agentClients } from "../../test/agents/clients.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const cache = join(homedir(), ".cache/lowbit-tests/agents");

/** @param {string} command @param {string[]} argv @param {object} [options] */
function run(command, argv, options = {}) {
  return spawnSync(command, argv, { stdio: ["ignore", "inherit", "inherit"], ...options }).status === 0;
}

/** The folder of a client's programs, installed where it is not; null where that cannot be. */
function installed({ name, npm, setup, pip }) {
  const folder = join(cache, name, (npm ?? pip).replaceAll("/", "--"));
  const bin = npm ? join(folder, "node_modules/.bin") : join(folder, "bin");
  const done = join(folder, "installed");
  if (existsSync(done)) return bin;
  console.log(`Installing ${npm ?? pip}`);
  mkdirSync(folder, { recursive: true });
  if (npm) {
    writeFileSync(join(folder, "package.json"), '{"private":true}');
    const quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
    if (!run("npm", ["install", ...quiet, npm], { cwd: folder })) return null;
    const own = join(folder, "node_modules", npm.slice(0, npm.lastIndexOf("@")));
    if (setup && !run(process.execPath, [setup], { cwd: own })) return null;
  } else {
    if (!run("python3", ["-m", "venv", folder])) return null;
    const argv = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", pip];
    if (!run(join(bin, "python"), argv)) return null;
  }
  writeFileSync(done, "");
  return bin;
}

/** Default templates: their tool calls have three unrelated formats. */
const TEMPLATES = ["qwen2.5", "gemma-4", "gpt-oss-form"];
const known = readdirSync(join(root, "test/templates")).flatMap((name) => /^(.*)\.jinja$/.exec(name)?.[1] ?? []);
const { values, positionals: names } = parseArgs({
  options: { template: { type: "string", multiple: true, default: TEMPLATES } },
  allowPositionals: true,
});
const templates = values.template.includes("all") ? known : values.template;
const unknown = templates.find((name) => !known.includes(name));
if (unknown !== undefined)
  throw new Error(`--template: expected all or one of ${known.join(", ")} but found ${unknown}`);
const wanted = agentClients.filter(({ name }) => names.length === 0 || names.includes(name));
const programs = Object.fromEntries(wanted.map((client) => [client.name, installed(client)]));
const missing = Object.keys(programs).filter((name) => programs[name] === null);
if (missing.length > 0) console.warn(`Not installed, and not tried: ${missing.join(", ")}`);
const vitest = join(root, "node_modules/vitest/vitest.mjs");
const argv = [vitest, "run", "--config", "test/agents/vitest.config.js"];
const env = { ...process.env, AGENT_PROGRAMS: JSON.stringify(programs), AGENT_TEMPLATES: JSON.stringify(templates) };
if (!run(process.execPath, argv, { cwd: root, env })) process.exit(1);
