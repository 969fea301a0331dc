/** `lowbit launch`: runs a coding agent on a model of this machine, without setup. */
import { spawn } from "node:child_process";
import { accessSync, chmodSync, constants, mkdirSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import type { Command } from "commander";
import { UnsupportedError } from "../index.ts";
import type { RunningServer } from "../server/index.ts";
import { programCache, writeFileWhole } from "../tools/index.ts";
import { type Launch, type LaunchClient, type LaunchTarget, launchClients } from "./launch-clients.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions } from "./model-source.ts";
import { addPrefixOptions, type PrefixOptions } from "./prefix-options.ts";
import { loadingWith, parseModel, servedModels } from "./served-models.ts";
import { ClientEnded, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

interface LaunchOptions extends ModelOptions, PrefixOptions {
  readonly model?: string;
  readonly url?: string;
  readonly dryRun?: boolean;
}

const DEFAULT_URL = "http://127.0.0.1:8080";
const KEY_VARIABLE = "LOWBIT_API_KEY";
const PROBE_MS = 2000;

export function addLaunch(program: Command, terminal: Terminal): void {
  const clients = Object.entries(launchClients);
  const command = program
    .command("launch")
    .summary("start a coding agent on a model of this machine")
    .description(
      `Starts a client on a model: ${clients.map(([name]) => name).join(", ")}. It is given the address, the model and its context\n` +
        "by variables, options or a config of lowbit's own; the user's files stay as they are. Without --url, a server at\n" +
        `${DEFAULT_URL} is taken that offers the model; where there is none, one runs for as long as the client does.`,
    )
    .argument("<client>", clients.map(([name, { title }]) => `${name} (${title})`).join(", "))
    .argument("[arguments...]", "arguments of the client, behind --")
    .option("-m, --model <model>", `${MODEL_HELP}; or a model of the server (default: the server's first)`)
    .option("--url <address>", `address of a server (default: ${DEFAULT_URL}, or one of its own)`)
    .option("--dry-run", "print how the client would be started on a server that runs, and start nothing");
  addModelOptions(addPrefixOptions(command))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit launch claude --model hf:Qwen/Qwen2.5-Coder-7B-Instruct
  $ lowbit launch codex --url http://127.0.0.1:8000 -- exec "What does calc.py do?"

A server that asks for a key gets that of ${KEY_VARIABLE}.`,
    )
    .action((name: string, argv: string[], options: LaunchOptions) => launch(name, argv, options, terminal));
}

async function launch(
  name: string,
  argv: readonly string[],
  options: LaunchOptions,
  terminal: Terminal,
): Promise<void> {
  const { model } = options;
  const client = Object.hasOwn(launchClients, name) ? launchClients[name]! : null;
  if (!client) throw new UsageError(`${name}: expected one of ${Object.keys(launchClients).join(", ")}`);
  if (!options.dryRun) checkInstalled(client);
  const key = process.env[KEY_VARIABLE] || "lowbit";
  const found = await serverWith(model, key, options);
  if (!found && options.dryRun) throw new UsageError(`--dry-run: expected a server at ${options.url ?? DEFAULT_URL}`);
  const server = found ? null : await startServer(model, options, terminal);
  try {
    const listed = found ?? (await listedAt(server!.url, key))![0]!;
    const url = options.url?.replace(/\/+$/, "") ?? server?.url ?? DEFAULT_URL;
    const folder = join(programCache(), "launch", name);
    const target: LaunchTarget = { url, model: listed.id, contextLength: listed.max_model_len ?? null, key, folder };
    noteContext(client, target, terminal);
    const how = client.launch(target);
    await writeFiles(folder, how.files ?? {});
    if (options.dryRun) return await terminal.writeJson({ command: client.command, ...how });
    const code = await run(client, how, argv, terminal);
    if (code !== 0) throw new ClientEnded(code);
  } finally {
    await server?.close();
  }
}

/** A model in a server's list. */
interface Listed {
  readonly id: string;
  readonly max_model_len?: number;
}

/** The models of a server; null where none answers. UnsupportedError for a server that refuses. */
async function listedAt(url: string, key: string): Promise<readonly Listed[] | null> {
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(`${url}/v1/models`, { headers, signal: AbortSignal.timeout(PROBE_MS) }).catch(
    () => null,
  );
  if (!response) return null;
  if (response.status === 401) throw new UnsupportedError(`${url}: asks for a key; give it in ${KEY_VARIABLE}`);
  const body = (await response.json().catch(() => null)) as { data?: readonly Listed[] } | null;
  if (!response.ok || !Array.isArray(body?.data)) throw new UnsupportedError(`${url}: expected a server of models`);
  return body.data;
}

/** The model of a running server; null where a server must be started. */
async function serverWith(model: string | undefined, key: string, { url }: LaunchOptions): Promise<Listed | null> {
  const at = (url ?? DEFAULT_URL).replace(/\/+$/, "");
  // Another program at the default address is no error.
  const models = await listedAt(at, key).catch((error) => {
    if (url !== undefined || model === undefined) throw error;
    return null;
  });
  if (!models && (url !== undefined || model === undefined))
    throw new UsageError(`${at}: no server answers: start one by \`lowbit serve\`, or name a model to run`);
  const wanted = model === undefined ? null : [model, parseModel(model).name];
  const found = models?.find(({ id }) => wanted?.includes(id) ?? true) ?? null;
  if (!found && url !== undefined)
    throw new UsageError(`${at}: expected one of ${models!.map(({ id }) => id).join(", ")} but found ${model}`);
  return found;
}

async function startServer(
  model: string | undefined,
  options: LaunchOptions,
  terminal: Terminal,
): Promise<RunningServer> {
  const models = await servedModels([model!], options, loadingWith(options, terminal));
  const { serveModels } = await import("../server/index.ts");
  const server = await serveModels({ models, port: 0, page: false });
  await server.ready.catch(async (error) => {
    await server.close();
    throw error.cause ?? error;
  });
  return server;
}

function checkInstalled({ title, command, install }: LaunchClient): void {
  const endings = process.platform === "win32" ? [".cmd", ".exe", ""] : [""];
  const isHere = (process.env.PATH ?? "").split(delimiter).some((folder) =>
    endings.some((ending) => {
      try {
        accessSync(join(folder, command + ending), constants.X_OK);
        return folder !== "";
      } catch {
        return false;
      }
    }),
  );
  if (!isHere) throw new UnsupportedError(`${title} is not installed: \`${command}\` is not on the PATH; ${install}`);
}

function noteContext({ title, firstTokens }: LaunchClient, { model, contextLength }: LaunchTarget, terminal: Terminal) {
  if (contextLength !== null && contextLength < 1.5 * firstTokens)
    terminal.note(
      `lowbit: ${title} begins with some ${firstTokens} tokens; ${model} has a context of ${contextLength}, which is short for it`,
    );
}

/** Writes files, which may hold a key, to a folder that only the user can read. */
async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    await writeFileWhole(path, (sink) => sink.write(new TextEncoder().encode(text)));
    chmodSync(path, 0o600);
  }
}

/** Runs the client in this terminal until it ends, and gives its exit code. */
function run({ command }: LaunchClient, { argv, env }: Launch, given: readonly string[], terminal: Terminal) {
  const variables = { ...process.env, ...env };
  const isWindows = process.platform === "win32";
  return new Promise<number>((resolve, reject) => {
    const child = spawn(command, [...argv, ...given], { stdio: "inherit", env: variables, shell: isWindows });
    // The terminal sends Ctrl-C to both processes; the client handles it.
    terminal.onTermination(() => child.kill("SIGTERM"));
    terminal.onInterrupt(() => {});
    child.on("error", (cause) =>
      reject(new UnsupportedError(`${command}: cannot be started: ${cause.message}`, { cause })),
    );
    child.on("close", (code) => resolve(code ?? 1));
  }).finally(() => terminal.onInterrupt(null));
}
