/** Computes the logits of many tokens of a text, as many in a step as the program gives logits of. */
import type { ProgramDecoder } from "./program-decoder.ts";

/** Gives logits [V] after each of the tokens `first` .. ids.length-1. Each array is valid until the next is asked for. */
export async function* logitRows(
  decoder: ProgramDecoder,
  ids: readonly number[],
  first: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Float32Array> {
  const { vocabularySize, logitRows: most } = decoder;
  if (most === 0) {
    yield await decoder.prefill(ids.slice(0, first + 1), { signal });
    for (const id of ids.slice(first + 1)) yield await decoder.step(id, { signal });
    return;
  }
  if (first > 0) await decoder.prefill(ids.slice(0, first), { signal });
  for (let start = first; start < ids.length; start += most) {
    const chunk = ids.slice(start, start + most);
    const logits = await decoder.allLogits(chunk, { signal, of: "prompt" });
    for (let i = 0; i < chunk.length; i++) yield logits.subarray(i * vocabularySize, (i + 1) * vocabularySize);
  }
}
