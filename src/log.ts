/** Lines for people who ask what is going on: LOWBIT_LOG=info (or TORCH_CPP_LOG_LEVEL=INFO, as for TorchAO). */

function wanted(): boolean {
  const environment = globalThis.process?.env ?? {};
  return environment.LOWBIT_LOG === "info" || environment.TORCH_CPP_LOG_LEVEL === "INFO";
}

/** Writes a line to the error stream at info level; the message is made only when it is wanted. */
export function logInfo(message: () => string): void {
  if (wanted()) console.error(`lowbit: ${message()}`);
}
