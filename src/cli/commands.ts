/** The command table, and how a command line ends: output, errors, exit codes. */
import { Command, CommanderError } from "commander";
import { LowbitError } from "../index.ts";
import { version } from "../tools/index.ts";
import { ClientEnded, Interrupted, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

type Add = (program: Command, terminal: Terminal) => void;

/** Modules of the commands, each loaded when it is asked for. */
const commands: Readonly<Record<string, () => Promise<Add>>> = {
  pull: async () => (await import("./pull.ts")).addPull,
  quantize: async () => (await import("./quantize.ts")).addQuantize,
  run: async () => (await import("./run.ts")).addRun,
  chat: async () => (await import("./chat.ts")).addChat,
  serve: async () => (await import("./serve.ts")).addServe,
  launch: async () => (await import("./launch.ts")).addLaunch,
  batch: async () => (await import("./batch.ts")).addBatch,
  list: async () => (await import("./cached-models.ts")).addList,
  show: async () => (await import("./cached-models.ts")).addShow,
  rm: async () => (await import("./cached-models.ts")).addRm,
  embed: async () => (await import("./embed.ts")).addEmbed,
  logits: async () => (await import("./logits.ts")).addLogits,
  inspect: async () => (await import("./inspect.ts")).addInspect,
  bundle: async () => (await import("./bundle.ts")).addBundle,
  kernels: async () => (await import("./kernels.ts")).addKernels,
  bench: async () => (await import("./bench.ts")).addBench,
  eval: async () => (await import("./eval.ts")).addEval,
  compare: async () => (await import("./compare.ts")).addCompare,
  doctor: async () => (await import("./doctor.ts")).addDoctor,
};

const FAILURE = 1;
const USAGE = 2;
/** EX_SOFTWARE of sysexits.h: an internal error. */
const BUG = 70;

/** Runs a command line, without the words `node` and `lowbit`. Resolves to the exit code; never rejects. */
export async function runCli(argv: readonly string[], terminal: Terminal): Promise<number> {
  try {
    checkCommand(argv);
    const [first = ""] = argv;
    const named = first === "--version" ? [] : first in commands ? [first] : Object.keys(commands);
    const program = createProgram(terminal);
    for (const name of named) (await commands[name]!())(program, terminal);
    await program.parseAsync(argv, { from: "user" });
    await terminal.written();
    return 0;
  } catch (error) {
    return exitCodeOf(error, terminal);
  }
}

function createProgram(terminal: Terminal): Command {
  const program = new Command("lowbit")
    .description("Large language models on ordinary CPUs: quantize to 1..8 bits, export to .pte, run.")
    .version(version, "--version", "print the version")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error: /, "lowbit: ")),
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit quantize ./Llama-3.2-1B-Instruct --qmode 8da4w --shared-embedding -o llama.pte
  $ lowbit chat llama.pte

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. LOWBIT_LOG=info tells which kernels run.`,
    );
  return program;
}

/** UsageError where the first word, or the one after `help`, is no command; commander would only show its help. */
function checkCommand(argv: readonly string[]): void {
  const names = ["help", ...Object.keys(commands)];
  const words = argv.filter((word) => !word.startsWith("-"));
  const named = words[0] === "help" ? words.slice(1, 2) : words.slice(0, 1);
  for (const name of named)
    if (!names.includes(name))
      throw new UsageError(`expected a command but found "${name}"; there are ${names.join(", ")}`);
}

/** Prints the error, and gives the exit code. */
function exitCodeOf(thrown: unknown, terminal: Terminal): number {
  const { signal } = terminal;
  // Work that the abort ended may throw an error of its own; the reason counts.
  const error: unknown = signal.aborted ? signal.reason : thrown;
  const { message, code, stack } = error as NodeJS.ErrnoException;
  if (error instanceof Interrupted || error instanceof ClientEnded) return error.exitCode;
  if (code === "EPIPE") return 0;
  // Commander has printed its messages already; help that was asked for has exit code 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE;
  if (error instanceof UsageError) {
    terminal.note(`lowbit: ${message}`);
    return USAGE;
  }
  const isSystemError = typeof code === "string" && typeof (error as NodeJS.ErrnoException).syscall === "string";
  terminal.note(error instanceof LowbitError || isSystemError ? `lowbit: ${message}` : (stack ?? String(error)));
  return error instanceof LowbitError || isSystemError ? FAILURE : BUG;
}
