/** Turns of the event loop for timers and input between two pieces of work, without the 1 to 4 ms that setTimeout costs. */

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

/** How long work may go on before the event loop gets a turn, so that timers and abort signals are seen. */
const TURN_MS = 20;
/** When it last had one: of all work, since one piece may be shorter than a turn and followed by the next at once. */
let turnStart = 0;

/** Whether it is time for `takeTurn`, for work whose pieces are too short to wait for that to find out. */
export function isTurnDue(): boolean {
  return performance.now() - turnStart >= TURN_MS;
}

/** Gives the event loop its turn when it is time; then throws the signal's reason if it was aborted. */
export async function takeTurn(signal?: AbortSignal): Promise<void> {
  if (!isTurnDue()) return;
  await nextMacrotask();
  turnHappened();
  signal?.throwIfAborted();
}

/** To be called by work that waited for other threads: the event loop had its turn meanwhile. */
export function turnHappened(): void {
  turnStart = performance.now();
}
