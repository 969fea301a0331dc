/** The command line as a process: signals, and the exit code. */
import { runCli } from "./commands.ts";
import { SIGINT_EXIT_CODE, SIGTERM_EXIT_CODE, Terminal } from "./terminal.ts";

/**
 * Seconds after SIGTERM before work that the abort does not reach, such as a system call, is killed. They are counted one
 * by one, so that a busy machine that seldom runs this process does not kill it before the abort was handled.
 */
const GRACE_SECONDS = 10;

/** Ends the process by the signal itself: process.exit would wait for other threads. */
function end(signal: NodeJS.Signals): void {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}

function endLater(signal: NodeJS.Signals): void {
  let left = GRACE_SECONDS;
  setInterval(() => {
    if (--left === 0) end(signal);
  }, 1000).unref();
}

/** Runs the command line of this process; its exit code. */
export function runProcess(): Promise<number> {
  const terminal = new Terminal(process);
  for (const [signal, exitCode] of [["SIGINT", SIGINT_EXIT_CODE] as const, ["SIGTERM", SIGTERM_EXIT_CODE] as const])
    process.on(signal, () => {
      if (!terminal.interrupt(exitCode)) end(signal);
      else if (signal === "SIGTERM" && !terminal.endsItself) endLater(signal);
    });
  return runCli(process.argv.slice(2), terminal);
}
