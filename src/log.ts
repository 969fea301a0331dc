/** Log lines for LOWBIT_LOG=info (or TORCH_CPP_LOG_LEVEL=INFO, as for TorchAO). */

let isChecked = false;

/** Whether the log is on. An unknown level in LOWBIT_LOG is warned about once. */
function wanted(): boolean {
  const { LOWBIT_LOG: level, TORCH_CPP_LOG_LEVEL: torchLevel } = globalThis.process?.env ?? {};
  if (level && level !== "info" && !isChecked) {
    isChecked = true;
    console.error(`lowbit: environment variable LOWBIT_LOG: expected info but found "${level}"`);
  }
  return level === "info" || torchLevel === "INFO";
}

/** Warns the user, by a process warning in Node and by the console in a page; nothing fails. */
export function warn(message: string): void {
  // Bundlers for web pages may leave a process without `emitWarning`.
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  if (process?.emitWarning) process.emitWarning(`lowbit: ${message}`);
  else console.warn(`lowbit: ${message}`);
}

/** Writes a line to the error stream at info level; the message is made only when it is wanted. */
export function logInfo(message: () => string): void {
  if (wanted()) console.error(`lowbit: ${message()}`);
}
