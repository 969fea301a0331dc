/** The command table, and how a command line ends: output, errors, exit codes. */
import { Command, CommanderError } from "commander";
import { LowbitError } from "../index.ts";
import { version } from "../tools/index.ts";
import { addBatch } from "./batch.ts";
import { addBench } from "./bench.ts";
import { addBundle } from "./bundle.ts";
import { addList, addRm, addShow } from "./cached-models.ts";
import { addChat } from "./chat.ts";
import { addCompare } from "./compare.ts";
import { addDoctor } from "./doctor.ts";
import { addEmbed } from "./embed.ts";
import { addEval } from "./eval.ts";
import { addInspect } from "./inspect.ts";
import { addKernels } from "./kernels.ts";
import { addLaunch, ClientEnded } from "./launch.ts";
import { addLogits } from "./logits.ts";
import { addPull } from "./pull.ts";
import { addQuantize } from "./quantize.ts";
import { addRun } from "./run.ts";
import { addServe } from "./serve.ts";
import { Interrupted, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

const commands: readonly ((program: Command, terminal: Terminal) => void)[] = [
  addPull,
  addQuantize,
  addRun,
  addChat,
  addServe,
  addLaunch,
  addBatch,
  addList,
  addShow,
  addRm,
  addEmbed,
  addLogits,
  addInspect,
  addBundle,
  addKernels,
  addBench,
  addEval,
  addCompare,
  addDoctor,
];

const FAILURE = 1;
const USAGE = 2;
/** EX_SOFTWARE of sysexits.h: an internal error. */
const BUG = 70;

/** Runs a command line, without the words `node` and `lowbit`. Resolves to the exit code; never rejects. */
export async function runCli(argv: readonly string[], terminal: Terminal): Promise<number> {
  try {
    const program = createProgram(terminal);
    checkCommand(argv, program);
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
  for (const add of commands) add(program, terminal);
  return program;
}

/** UsageError where the first word, or the one after `help`, is no command; commander would only show its help. */
function checkCommand(argv: readonly string[], program: Command): void {
  const names = ["help", ...program.commands.map((command) => command.name())];
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
