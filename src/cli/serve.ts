/** `lowbit serve`: an HTTP server with the APIs of OpenAI, Anthropic and Ollama. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { InvalidFileError } from "../index.ts";
import type { RunningServer, UnseenPolicy } from "../server/index.ts";
import { type ApiKey, parseKeys } from "../server/keys.ts";
import { defaultLimits, type ServerLimits } from "../server/limits.ts";
import { addDraftOption, type DraftOption } from "./draft-option.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions } from "./model-source.ts";
import { addPrefixOptions, type PrefixOptions } from "./prefix-options.ts";
import { loadingWith, modelPuller, servedModels } from "./served-models.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { byteCount, collect, port } from "./values.ts";

interface ServeOptions extends ModelOptions, PrefixOptions, DraftOption {
  readonly host: string;
  readonly port: number;
  readonly keys?: string;
  readonly cors?: readonly string[];
  readonly allowHost?: readonly string[];
  readonly memory?: number;
  readonly preload?: boolean;
  readonly requestLimit?: readonly (readonly [string, number])[];
  readonly log: boolean;
  readonly page: boolean;
  readonly warm?: string;
  readonly sharePrefix?: readonly string[];
  readonly unseen: UnseenPolicy;
  readonly responsesFile?: string;
}

const KEYS_VARIABLE = "LOWBIT_API_KEYS";

export function addServe(program: Command, terminal: Terminal): void {
  const command = program
    .command("serve")
    .summary("serve models over HTTP")
    .description(
      "Serves models over HTTP, in the forms of OpenAI's, Anthropic's and Ollama's APIs. A model is loaded when it is first\n" +
        "asked for (a single one at once), and put away while others need its memory. Requests are logged to stdout, a line of\n" +
        "JSON each, without what they say.",
    )
    .argument("<models...>", `${MODEL_HELP}; name=path gives it another name`)
    .option("--host <address>", "address to listen at; 0.0.0.0 lets other machines ask", "127.0.0.1")
    .option("--port <n>", "port to listen at; 0 takes a free one", port, 8080)
    .option(
      "--keys <file>",
      `API keys, one a line, with "manage" behind those that may load, pull and delete models; also in ${KEYS_VARIABLE}, separated by commas (default: none)`,
    )
    .option("--cors <origin>", 'pages that may ask, such as https://example.com, or "*"; repeatable', collect(String))
    .option(
      "--allow-host <name>",
      'names by which requests may call a server of 127.0.0.1, such as that of a proxy, or "*"; repeatable (default: this machine\'s)',
      collect(String),
    )
    .option("--memory <n>", "most memory of all loaded models, such as 8g (default: what is free)", byteCount)
    .option("--preload", "load all models at once, and be ready after that")
    .option(
      "--request-limit <name=number>",
      `what requests may cost: ${Object.keys(defaultLimits).join(", ")}; repeatable`,
      collect(parseRequestLimit),
    )
    .addOption(
      new Option(
        "--unseen <what>",
        "images and files that a model cannot see: auto refuses those that a user has just sent, and names others in the prompt",
      )
        .choices(["auto", "name", "refuse"])
        .default("auto"),
    )
    .option(
      "--warm <file.jsonl>",
      "prompts that are computed before the server is ready: a body of /v1/chat/completions a line, or url and body",
    )
    .option(
      "--share-prefix <what>",
      'what keys share of computed prompts: "keys" for all, or a file of prompts as --warm has it; repeatable (default: those of --warm)',
      collect(String),
    )
    .option(
      "--responses-file <file>",
      "where responses of /v1/responses are kept for the next start (default: in memory)",
    )
    .option("--no-page", "serve no chat page at /")
    .option("--no-log", "log no requests");
  addModelOptions(addPrefixOptions(addDraftOption(command)))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit serve llama.pte
  $ lowbit serve llama.pte small=smollm2.pte hf:Qwen/Qwen2.5-0.5B-Instruct --port 8000
  $ lowbit serve llama.pte --host 0.0.0.0 --keys keys.txt --request-limit waiting=64`,
    )
    .action((models: string[], options: ServeOptions) => serve(models, options, terminal));
}

function parseRequestLimit(text: string): readonly [string, number] {
  const [, name = "", value = ""] = /^(\w+)=(\d+)$/.exec(text) ?? [];
  if (!Object.hasOwn(defaultLimits, name) || Number(value) < 1)
    throw new InvalidArgumentError(
      `Expected NAME=number from 1, with a name of ${Object.keys(defaultLimits).join(", ")}, but found "${text}".`,
    );
  return [name, Number(value)];
}

async function serve(given: readonly string[], options: ServeOptions, terminal: Terminal): Promise<void> {
  const loading = loadingWith(options, terminal);
  const models = await servedModels(given, options, loading);
  const keys = await readKeys(options.keys);
  const limits: Partial<ServerLimits> = Object.fromEntries(options.requestLimit ?? []);
  // Loaded here, so that other commands start without the server's modules.
  const { parsePrompts, serveModels } = await import("../server/index.ts");
  const promptsOf = async (file: string) => parsePrompts(await readTextFile(file), file, limits);
  const { warm, sharePrefix = [] } = options;
  const shared = await Promise.all(sharePrefix.filter((what) => what !== "keys").map(promptsOf));
  const server = await serveModels({
    models,
    host: options.host,
    port: options.port,
    keys,
    origins: options.cors,
    hosts: options.allowHost,
    memoryBytes: options.memory,
    preload: options.preload ? models.map(({ name }) => name) : undefined,
    limits,
    page: options.page,
    unseen: options.unseen,
    responsesFile: options.responsesFile,
    sharedPrefixes: sharePrefix.includes("keys") ? "all" : shared.flat(),
    warm: warm === undefined ? [] : await promptsOf(warm),
    pull: modelPuller(options, loading),
    log: options.log ? (line) => terminal.stdout.write(`${line}\n`) : undefined,
    onFault: (error, id) => terminal.note(`lowbit: request ${id}: ${(error as Error)?.stack ?? String(error)}`),
  });
  const names = models.map(({ name }) => name).join(", ");
  const page = server.hasPage ? `, chat page at ${server.url}/` : "";
  terminal.note(`${names} at ${server.url}/v1 (OpenAI) and ${server.url} (Anthropic, Ollama)${page}; Ctrl-C ends`);
  if (keys.length === 0 && !isLoopback(options.host))
    terminal.note(`lowbit: everyone who reaches ${options.host} may ask: give --keys, or ${KEYS_VARIABLE}`);
  await untilEnded(server, terminal);
}

/** Waits for a signal, then for requests under way; a second signal aborts those. */
async function untilEnded(server: RunningServer, terminal: Terminal): Promise<void> {
  const ended = new Promise<void>((end, fail) => {
    terminal.onTermination(() => {
      terminal.note("ending when the requests under way have ended; again to end now");
      server.close().then(end, fail);
    });
    server.ready.catch((error) => server.close().then(() => fail(error.cause ?? error), fail));
  });
  // An unhandled rejection that a request left must not end the others.
  const onRejection = (error: unknown) => terminal.note(`lowbit: ${(error as Error)?.stack ?? String(error)}`);
  process.on("unhandledRejection", onRejection);
  try {
    await ended;
  } finally {
    process.off("unhandledRejection", onRejection);
    terminal.onInterrupt(null);
  }
}

async function readKeys(file: string | undefined): Promise<ApiKey[]> {
  const fromFile = file === undefined ? [] : parseKeys(await readTextFile(file));
  const fromEnvironment = parseKeys((process.env[KEYS_VARIABLE] ?? "").replaceAll(",", "\n"));
  const keys = [...fromFile, ...fromEnvironment];
  // A file without keys must not open the server to everyone.
  if (file !== undefined && keys.length === 0)
    throw new InvalidFileError(file, "expected API keys, one a line, but found none");
  return keys;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}
