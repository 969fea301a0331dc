#!/usr/bin/env node
/** The `lowbit` program: signals, and the exit code. */
import { runCli } from "./commands.ts";
import { SIGINT_EXIT_CODE, SIGTERM_EXIT_CODE, Terminal } from "./terminal.ts";

const terminal = new Terminal(process);
for (const [signal, exitCode] of [["SIGINT", SIGINT_EXIT_CODE] as const, ["SIGTERM", SIGTERM_EXIT_CODE] as const])
  process.on(signal, () => {
    if (!terminal.interrupt(exitCode)) process.exit(exitCode);
  });

// Not process.exit: output that a pipe has not taken yet would be lost.
process.exitCode = await runCli(process.argv.slice(2), terminal);
