/**
 * `npm run test:serve`: real clients against `lowbit serve`, and over `lowbit/ai-sdk`, with the demo model. Installs
 * JavaScript clients in test/serve and, if there is a Python, Python clients in build/serve-python; with --all, also LiteLLM's
 * proxy and lm-eval.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const clients = join(root, "test/serve");

/** @param {string} command @param {string[]} argv @param {object} [options] */
function run(command, argv, options = {}) {
  const { status } = spawnSync(command, argv, { cwd: root, stdio: "inherit", ...options });
  return status === 0;
}

/** Path of a Python that has the clients; null where there is none, or where they cannot be installed. */
function pythonWithClients() {
  if (process.env.SERVE_PYTHON) return process.env.SERVE_PYTHON;
  const folder = join(root, "build/serve-python");
  const python = join(folder, "bin/python");
  if (!existsSync(python) && !run("python3", ["-m", "venv", folder])) return null;
  const more = process.argv.includes("--all") ? ["litellm[proxy]", "lm_eval[api]", "transformers"] : [];
  const argv = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "-r",
    join(clients, "requirements.txt"),
  ];
  return run(python, [...argv, ...more]) ? python : null;
}

const quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
if (!run("npm", ["ci", ...quiet], { cwd: clients })) process.exit(1);
const python = pythonWithClients();
if (python === null) console.warn("Without Python and its clients: they are not tried.");
const vitest = join(root, "node_modules/vitest/vitest.mjs");
const env = { ...process.env, SERVE_PYTHON: python ?? "" };
const names = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
if (!run(process.execPath, [vitest, "run", "--config", "test/serve/vitest.config.js", ...names], { env }))
  process.exit(1);
