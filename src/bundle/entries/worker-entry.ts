/**
 * The worker of a bundle. Each message { id, call, … } is answered by { id, result } or { id, error }; calls run in order:
 * load { source }, prefill { ids }, step { token }, rewind { position }. Logits are transferred.
 */
import { createDecoder, load, type ProgramDecoder, type ProgramSource } from "./entry.ts";

type Request =
  | { readonly id: number; readonly call: "load"; readonly source: ProgramSource; readonly threads?: number }
  | { readonly id: number; readonly call: "prefill"; readonly ids: readonly number[] }
  | { readonly id: number; readonly call: "step"; readonly token: number }
  | { readonly id: number; readonly call: "rewind"; readonly position: number };

interface Port {
  onmessage: ((event: { readonly data: Request }) => void) | null;
  postMessage(message: unknown, transfer?: readonly ArrayBuffer[]): void;
}

const port = globalThis as unknown as Port;
let decoder: ProgramDecoder | null = null;

async function serve(request: Request): Promise<unknown> {
  if (request.call === "load") {
    const program = await load(request.source, { threads: request.threads });
    decoder = createDecoder(program);
    const { vocabularySize, contextLength } = decoder;
    return { vocabularySize, contextLength };
  }
  if (!decoder) throw new TypeError(`${request.call}: load a program first`);
  if (request.call === "prefill") return (await decoder.prefill(request.ids)).slice();
  if (request.call === "step") return (await decoder.step(request.token)).slice();
  return decoder.rewind(request.position);
}

let turn: Promise<void> = Promise.resolve();
port.onmessage = ({ data }) => {
  turn = turn.then(async () => {
    try {
      const result = await serve(data);
      port.postMessage({ id: data.id, result }, result instanceof Float32Array ? [result.buffer as ArrayBuffer] : []);
    } catch (error) {
      port.postMessage({ id: data.id, error: error instanceof Error ? error.message : String(error) });
    }
  });
};
