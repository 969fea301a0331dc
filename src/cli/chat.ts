/** `lowbit chat`: a conversation in the model's chat template, on a terminal or a line a turn from a pipe. */
import { createInterface, type Interface } from "node:readline";
import { type Command, Option } from "commander";
import { type Conversation, LowbitError } from "../index.ts";
import { ChatLines } from "./chat-lines.ts";
import { confirmedTools } from "./confirmed-tools.ts";
import { addDraftOption, type DraftOption, draftOf } from "./draft-option.ts";
import { openMcpTools } from "./mcp-tools.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import { PastedText } from "./pasted-text.ts";
import { addPrefixOptions, openPrefixes, type PrefixOptions } from "./prefix-options.ts";
import { describeSpeed } from "./run.ts";
import { addSamplingOptions, generateOptions, type SamplingOptions } from "./sampling-options.ts";
import { Interrupted, SIGINT_EXIT_CODE, type Terminal } from "./terminal.ts";
import { collect } from "./values.ts";

interface ChatOptions extends ModelOptions, SamplingOptions, PrefixOptions, DraftOption {
  readonly system?: string;
  readonly stats?: boolean;
  readonly whenFull?: "error" | "leave-out-oldest";
  readonly mcp?: readonly string[];
  readonly allowTool?: readonly string[];
}

const HELP = `/reset  start over
/exit   leave (also Ctrl-D)
/help   this
Ctrl-C stops an answer; twice leaves.`;

export function addChat(program: Command, terminal: Terminal): void {
  const command = program
    .command("chat")
    .summary("talk to a model")
    .description(
      "A conversation in the model's chat template. A pasted text of several lines is one turn; on a pipe, each line of stdin is.",
    )
    .argument("<model>", MODEL_HELP)
    .option("--system <text>", "system message at the start")
    .option(
      "--mcp <server>",
      "tools of an MCP server: its command, its address, or a .json file with mcpServers; repeatable (needs @modelcontextprotocol/sdk)",
      collect(String),
    )
    .option("--allow-tool <name>", 'a tool that is called without asking, or "*"; repeatable', collect(String))
    .option("--stats", "print the speed of each answer on stderr")
    .addOption(
      new Option(
        "--when-full <what>",
        "what to do with a conversation longer than the context: stop, or let the model read it without its oldest turns",
      )
        .choices(["error", "leave-out-oldest"])
        .default("error"),
    );
  addModelOptions(addPrefixOptions(addDraftOption(addSamplingOptions(command))))
    .addHelpText(
      "after",
      `
In the conversation:
${HELP.replace(/^/gm, "  ")}

Examples:
  $ lowbit chat llama.pte --system "You are brief."
  $ lowbit chat qwen3.pte --mcp "npx -y @modelcontextprotocol/server-filesystem ." --allow-tool list_directory
  $ printf 'Hello\\nAnd then?\\n' | lowbit chat llama.pte --temperature 0`,
    )
    .action((model: string, options: ChatOptions) => chat(model, options, terminal));
}

async function chat(path: string, options: ChatOptions, terminal: Terminal): Promise<void> {
  const prefixes = await openPrefixes(options, terminal);
  const draft = draftOf(options, options, terminal);
  const mcp = options.mcp ? await openMcpTools(options.mcp, terminal.signal) : null;
  const model = await openModel(path, options, terminal, { isKept: true, prefixes, draft }).catch(async (error) => {
    await mcp?.close();
    throw error;
  });
  const pasted = terminal.isInteractive ? new PastedText(terminal) : null;
  const input = createInterface({
    input: pasted ?? terminal.stdin,
    ...(pasted ? { output: terminal.stdout, prompt: "> " } : {}),
    terminal: pasted !== null,
  });
  const lines = new ChatLines(input);
  const ask = async (question: string, signal: AbortSignal | undefined) => {
    await terminal.write(`\n${question}`);
    return lines.next(signal);
  };
  const tools = confirmedTools(mcp?.tools ?? [], {
    allowed: options.allowTool ?? [],
    note: (line) => terminal.note(line),
    ask: terminal.isInteractive ? ask : null,
  });
  if (mcp) terminal.note(`tools: ${tools.map(({ name }) => name).join(", ")}`);
  const conversation = model.createConversation({
    ...(tools.length > 0 && { tools }),
    whenFull: options.whenFull === "leave-out-oldest" ? "leaveOutOldest" : "error",
    onLeaveOut: (messages) =>
      terminal.note(`(the context is full: the model no longer reads the first ${messages} messages)`),
  });
  conversation.reset(options.system);
  if (terminal.isInteractive) terminal.note(`${path}: type a message, or /help.`);
  try {
    const turns = new Turns(conversation, options, terminal);
    await converse(turns, { input, lines }, terminal, (line) => pasted?.whole(line) ?? line);
  } finally {
    terminal.onInterrupt(null);
    input.close();
    pasted?.close();
    await mcp?.close();
  }
}

async function converse(
  turns: Turns,
  { input, lines }: { readonly input: Interface; readonly lines: ChatLines },
  terminal: Terminal,
  whole: (line: string) => string,
): Promise<void> {
  const prompt = () => {
    if (terminal.isInteractive && !lines.isClosed) input.prompt();
  };
  // In raw mode, the terminal sends Ctrl-C as a key.
  input.on("SIGINT", () => terminal.interrupt());
  terminal.signal.addEventListener("abort", () => input.close());
  terminal.onInterrupt(() => {
    const meaning = turns.interrupt();
    if (meaning === "leave") input.close();
    if (meaning !== "ask") return;
    terminal.note("\n(Ctrl-C again or /exit leaves)");
    prompt();
  });
  prompt();
  for await (const line of lines) {
    if (turns.isOver || line.trim() === "/exit") break;
    await turns.take(whole(line).trim());
    prompt();
  }
  terminal.signal.throwIfAborted();
  if (turns.isOver) throw new Interrupted(SIGINT_EXIT_CODE);
}

/** Runs the conversation line by line; decides what Ctrl-C does. */
class Turns {
  /** Whether the user has left with Ctrl-C. */
  isOver = false;
  readonly #conversation: Conversation;
  readonly #options: ChatOptions;
  readonly #terminal: Terminal;
  /** Aborts the answer under way. */
  #answer: AbortController | null = null;
  #interrupts = 0;

  constructor(conversation: Conversation, options: ChatOptions, terminal: Terminal) {
    this.#conversation = conversation;
    this.#options = options;
    this.#terminal = terminal;
  }

  /** Ctrl-C: the first since the last line stops the answer under way; the second leaves. */
  interrupt(): "stop" | "ask" | "leave" {
    this.#interrupts++;
    this.isOver = this.#interrupts > 1;
    this.#answer?.abort(new Interrupted(SIGINT_EXIT_CODE));
    if (this.isOver) return "leave";
    return this.#answer ? "stop" : "ask";
  }

  async take(line: string): Promise<void> {
    this.#interrupts = 0;
    if (line === "") return;
    if (line === "/help") this.#terminal.note(HELP);
    else if (line === "/reset") this.#conversation.reset(this.#options.system);
    else if (/^\/.*$/.test(line)) this.#terminal.note(`${line} is no command; /help lists them`);
    else await this.#reply(line);
  }

  async #reply(line: string): Promise<void> {
    const terminal = this.#terminal;
    const answer = new AbortController();
    this.#answer = answer;
    const signal = AbortSignal.any([answer.signal, terminal.signal]);
    try {
      const generation = this.#conversation.send(line, { ...generateOptions(this.#options), signal });
      for await (const piece of generation) await terminal.write(piece);
      await terminal.writeLine();
      const result = await generation.result;
      const { message } = result;
      if (message !== null) terminal.note(`(${message})`);
      if (this.#options.stats) terminal.note(describeSpeed(result));
    } catch (error) {
      if (error instanceof Interrupted && answer.signal.aborted) await terminal.writeLine();
      else if (error instanceof LowbitError && terminal.isInteractive)
        terminal.note(`lowbit: ${error.message}\n(/reset starts over)`);
      else throw error;
    } finally {
      this.#answer = null;
    }
  }
}
