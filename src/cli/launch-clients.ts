/**
 * The clients that `lowbit launch` starts, and how each is told of a server: environment, options or a config file in a
 * folder of ours. Their settings in the user's home are not changed.
 */
import { join } from "node:path";

/** The server and the model that a client is to use. */
export interface LaunchTarget {
  /** Address of the server, without a path. */
  readonly url: string;
  readonly model: string;
  /** Context length in tokens; null where the server does not say. */
  readonly contextLength: number | null;
  /** API key of requests; a server without keys takes any. */
  readonly key: string;
  /** Folder for files that the client is given and keeps. */
  readonly folder: string;
}

/** Arguments, environment and files for starting a client. */
export interface Launch {
  /** Arguments before those of the user. */
  readonly argv: readonly string[];
  /** Environment variables to set; undefined removes one. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Files to write into the folder, by name. */
  readonly files?: Readonly<Record<string, string>>;
}

export interface LaunchClient {
  readonly title: string;
  /** Command that starts the client. */
  readonly command: string;
  /** Command that installs the client. */
  readonly install: string;
  /** Approximate tokens of its first request; 0 where they are few. */
  readonly firstTokens: number;
  readonly launch: (target: LaunchTarget) => Launch;
}

/** Context length that is assumed where the server does not say. */
const CONTEXT = 32768;
const OUTPUT_MAX = 8192;

/** Most tokens of an answer, for clients that must be told. */
function outputOf({ contextLength }: LaunchTarget): number {
  return Math.min(OUTPUT_MAX, Math.floor((contextLength ?? CONTEXT) / 4));
}

const openai = ({ url }: LaunchTarget) => `${url}/v1`;

function claude(target: LaunchTarget): Launch {
  const { url, model, key, contextLength } = target;
  const sizes = ["OPUS", "SONNET", "HAIKU", "FABLE"].map((size) => [`ANTHROPIC_DEFAULT_${size}_MODEL`, model]);
  return {
    argv: [],
    env: {
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: key,
      ANTHROPIC_API_KEY: undefined,
      ANTHROPIC_MODEL: model,
      ANTHROPIC_SMALL_FAST_MODEL: model,
      ...Object.fromEntries(sizes),
      CLAUDE_CODE_SUBAGENT_MODEL: model,
      CLAUDE_CODE_AUTO_COMPACT_WINDOW: contextLength === null ? undefined : String(contextLength),
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: String(outputOf(target)),
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  };
}

const KEY_VARIABLE = "LOWBIT_LAUNCH_KEY";

/** Options of Codex are TOML values; strings and numbers of JSON are valid TOML. */
function codex(target: LaunchTarget): Launch {
  const settings = {
    model_provider: "lowbit",
    model: target.model,
    "model_providers.lowbit.name": "lowbit",
    "model_providers.lowbit.base_url": openai(target),
    "model_providers.lowbit.wire_api": "responses",
    "model_providers.lowbit.env_key": KEY_VARIABLE,
    ...(target.contextLength !== null && { model_context_window: target.contextLength }),
  };
  const argv = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${JSON.stringify(value)}`]);
  return { argv, env: { [KEY_VARIABLE]: target.key } };
}

function opencode(target: LaunchTarget): Launch {
  const { model, key, contextLength } = target;
  const limit = { context: contextLength ?? CONTEXT, output: outputOf(target) };
  const provider = {
    npm: "@ai-sdk/openai-compatible",
    name: "lowbit",
    options: { baseURL: openai(target), apiKey: key },
    models: { [model]: { name: model, tool_call: true, limit } },
  };
  const name = `lowbit/${model}`;
  const config = { model: name, small_model: name, provider: { lowbit: provider } };
  return { argv: [], env: { OPENCODE_CONFIG_CONTENT: JSON.stringify(config) } };
}

function qwen(target: LaunchTarget): Launch {
  const { model, key } = target;
  return {
    argv: ["--auth-type", "openai", "--model", model],
    env: { OPENAI_BASE_URL: openai(target), OPENAI_API_KEY: key, OPENAI_MODEL: model },
  };
}

function cline(target: LaunchTarget): Launch {
  const { model, key, folder } = target;
  const settings = { provider: "openai-compatible", apiKey: key, model, baseUrl: openai(target) };
  const updatedAt = new Date().toISOString();
  const providers = { "openai-compatible": { settings, updatedAt, tokenSource: "manual" } };
  const file = { version: 1, lastUsedProvider: "openai-compatible", modes: {}, providers };
  return {
    argv: ["--data-dir", folder, "--provider", "openai-compatible", "--model", model],
    env: {},
    files: { "settings/providers.json": JSON.stringify(file) },
  };
}

function continueCli(target: LaunchTarget): Launch {
  const { model, key, folder, contextLength } = target;
  const options = { contextLength: contextLength ?? CONTEXT, maxTokens: outputOf(target) };
  const one = {
    ...{ name: model, provider: "openai", model, apiBase: openai(target), apiKey: key },
    ...{ roles: ["chat", "edit", "apply"], capabilities: ["tool_use"], defaultCompletionOptions: options },
  };
  // JSON is valid YAML.
  const config = JSON.stringify({ name: "lowbit", version: "0.0.1", schema: "v1", models: [one] });
  return { argv: ["--config", join(folder, "config.yaml")], env: {}, files: { "config.yaml": config } };
}

function pi(target: LaunchTarget): Launch {
  const { model, key, folder, contextLength } = target;
  const one = {
    ...{ id: model, name: model, reasoning: false, input: ["text"] },
    ...{ cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } },
    ...{ contextWindow: contextLength ?? CONTEXT, maxTokens: outputOf(target) },
  };
  const provider = { name: "lowbit", baseUrl: openai(target), apiKey: key, api: "openai-completions", models: [one] };
  const extension = `export default (pi) => pi.registerProvider("lowbit", ${JSON.stringify(provider)});\n`;
  return {
    argv: ["--extension", join(folder, "provider.js"), "--provider", "lowbit", "--model", model],
    env: {},
    files: { "provider.js": extension },
  };
}

function aider(target: LaunchTarget): Launch {
  const { model, key, folder, contextLength } = target;
  const name = `openai/${model}`;
  const tokens = { max_input_tokens: contextLength ?? CONTEXT, max_output_tokens: outputOf(target) };
  const facts = {
    ...tokens,
    input_cost_per_token: 0,
    output_cost_per_token: 0,
    litellm_provider: "openai",
    mode: "chat",
  };
  return {
    argv: ["--model", name, "--weak-model", name, "--model-metadata-file", join(folder, "models.json")],
    env: { OPENAI_API_BASE: openai(target), OPENAI_API_KEY: key },
    files: { "models.json": JSON.stringify({ [name]: facts }) },
  };
}

function llm(target: LaunchTarget): Launch {
  const { model, key, folder } = target;
  const one = {
    model_id: model,
    model_name: model,
    api_base: openai(target),
    supports_tools: true,
    supports_schema: true,
  };
  return {
    argv: [],
    env: { LLM_USER_PATH: folder, LLM_MODEL: model, OPENAI_API_KEY: key },
    files: { "extra-openai-models.yaml": JSON.stringify([one]) },
  };
}

const client = (title: string, command: string, install: string, launch: LaunchClient["launch"], firstTokens = 0) => ({
  ...{ title, command, install, firstTokens, launch },
});

/** The clients by the names that `lowbit launch` takes. */
export const launchClients: Readonly<Record<string, LaunchClient>> = {
  claude: client("Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", claude, 18_800),
  codex: client("Codex", "codex", "npm install -g @openai/codex", codex, 9_000),
  opencode: client("opencode", "opencode", "npm install -g opencode-ai", opencode, 7_200),
  qwen: client("Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", qwen, 14_900),
  cline: client("Cline", "cline", "npm install -g cline", cline, 7_000),
  continue: client("Continue", "cn", "npm install -g @continuedev/cli", continueCli, 4_000),
  pi: client("pi", "pi", "npm install -g @earendil-works/pi-coding-agent", pi, 1_500),
  aider: client("aider", "aider", "python -m pip install aider-install && aider-install", aider, 2_500),
  llm: client("llm", "llm", "pip install llm", llm),
};
