/** Gives the event loop turns for timers and input, without the 1 to 4 ms of setTimeout. */

/** Resolves in a new macrotask. */
export const nextMacrotask: () => Promise<void> =
  typeof globalThis.setImmediate === "function"
    ? () => new Promise((resolve) => setImmediate(resolve))
    : () => new Promise(postToSelf);

function postToSelf(resolve: () => void): void {
  const { port1, port2 } = new MessageChannel();
  (port1 as unknown as { onmessage: () => void }).onmessage = () => {
    port1.close();
    resolve();
  };
  port2.postMessage(null);
}

/** Milliseconds of work after which the event loop gets a turn, so that timers and abort signals take effect. */
const TURN_MS = 20;
/** Time of the event loop's last turn. All work shares it, since pieces may be short and follow each other at once. */
let turnStart = 0;

/** Whether a turn is due, for work whose pieces are too short to await `takeTurn` each time. */
export function isTurnDue(): boolean {
  return performance.now() - turnStart >= TURN_MS;
}

/** Gives the event loop a turn when one is due; then throws the signal's reason if it is aborted. */
export async function takeTurn(signal?: AbortSignal): Promise<void> {
  if (!isTurnDue()) return;
  await nextMacrotask();
  turnHappened();
  signal?.throwIfAborted();
}

/** Notes that the event loop had a turn: callers have waited for other threads. */
export function turnHappened(): void {
  turnStart = performance.now();
}
