/** Lines for people who ask what is going on: LOWBIT_LOG=info (or TORCH_CPP_LOG_LEVEL=INFO, as for TorchAO). */

let isChecked = false;

/** Says once where LOWBIT_LOG is no level: what was meant is not known, and no reason to stop. */
function wanted(): boolean {
  const { LOWBIT_LOG: level, TORCH_CPP_LOG_LEVEL: torchLevel } = globalThis.process?.env ?? {};
  if (level && level !== "info" && !isChecked) {
    isChecked = true;
    console.error(`lowbit: environment variable LOWBIT_LOG: expected info but found "${level}"`);
  }
  return level === "info" || torchLevel === "INFO";
}

/** Says what users should know although nothing fails, as the process or the page shows warnings. */
export function warn(message: string): void {
  // Bundlers of pages may leave a process without it.
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  if (process?.emitWarning) process.emitWarning(`lowbit: ${message}`);
  else console.warn(`lowbit: ${message}`);
}

/** Writes a line to the error stream at info level; the message is made only when it is wanted. */
export function logInfo(message: () => string): void {
  if (wanted()) console.error(`lowbit: ${message()}`);
}
