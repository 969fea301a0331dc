/**
 * Runs a program a few times before its first use where its code is compiled on the way: WebAssembly engines run code in
 * a fast compiler's version first and replace it when it has run for a while.
 */
import type { LoadedProgram } from "../runtime/program.ts";
import { SessionDecoder } from "./session-decoder.ts";

/** Tokens of a warm-up prompt: enough for the kernels of many rows. */
const PROMPT_TOKENS = 8;
const PROMPT_RUNS = 3;
/**
 * Steps are repeated until one is about as fast as the fastest; those of small models often, since the code that replaces
 * the first is compiled while all cores are busy.
 */
const STEPS_MIN = 4;
const STEPS_MAX = 160;
const STEADY = 1.15;
/** Large models are slow enough that their code is replaced within few steps. */
const STEPS_MS = 500;

/** A decoder that has run, at its start again; null where there is nothing to warm up. */
export async function warmDecoder(
  program: LoadedProgram,
  {
    signal,
    warmUpMs = STEPS_MS,
  }: { readonly signal?: AbortSignal | undefined; readonly warmUpMs?: number | undefined } = {},
): Promise<SessionDecoder | null> {
  const isDecoder = ["get_max_seq_len", "get_vocab_size"].every((name) => program.metadata.has(name));
  if (!program.memory.holdsConstants || !isDecoder) return null;
  await warmPrompt(program, signal);
  const decoder = new SessionDecoder(program);
  const start = performance.now();
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < STEPS_MAX; i++) {
    const before = performance.now();
    // A first token comes from a prompt.
    await (i % 2 === 0 ? decoder.prefill([0], { signal }) : decoder.step(0, { signal }));
    decoder.rewind(0);
    const taken = performance.now() - before;
    best = Math.min(best, taken);
    const isSteady = i >= STEPS_MIN && taken <= STEADY * best;
    if (isSteady && (performance.now() - start > warmUpMs || i > STEPS_MAX / 2)) break;
    if (performance.now() - start > 2 * warmUpMs && i >= STEPS_MIN) break;
  }
  return decoder;
}

async function warmPrompt(program: LoadedProgram, signal: AbortSignal | undefined): Promise<void> {
  const decoder = new SessionDecoder(program);
  const count = Math.min(PROMPT_TOKENS, decoder.chunkLength, decoder.contextLength);
  for (let run = 0; run < PROMPT_RUNS; run++) {
    decoder.rewind(0);
    await decoder.prefill(new Array(count).fill(0), { signal });
  }
  await decoder.dispose();
}
