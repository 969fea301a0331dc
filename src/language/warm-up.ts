/**
 * Warms up programs whose code is compiled while it runs: WebAssembly engines first run the output of a fast compiler, and
 * replace it by optimised code after a while.
 */
import { type LoadedProgram, storeOf } from "../runtime/program.ts";
import { createDecoder } from "./decoders.ts";
import type { ProgramDecoder } from "./program-decoder.ts";

/**
 * Tokens of the first warm-up prompts, enough for the GEMM kernels. While there is time, longer prompts follow, each of
 * another length: kernels have a function for each remainder of six rows. No prompt fills a page, since the next would find
 * it in the prefix cache instead of computing it.
 */
const SHORT_PROMPT = 8;
const SHORT_RUNS = 3;
const LONG_PROMPT = 31;
const PROMPT_RUNS = 15;
const PROMPT_MS = 120;
/**
 * Steps are repeated until one takes about as long as the fastest (within `STEADY`). Small models need many, since
 * optimised code is compiled while all cores are busy.
 */
const STEPS_MIN = 4;
const STEPS_MAX = 160;
const STEADY = 1.15;
/** Most milliseconds of steps: those of large models are so long that few suffice. */
const STEPS_MS = 500;

/** Gives a decoder that has run, rewound to its start; null where there is nothing to warm up. */
export async function warmDecoder(
  program: LoadedProgram,
  {
    signal,
    warmUpMs = STEPS_MS,
  }: { readonly signal?: AbortSignal | undefined; readonly warmUpMs?: number | undefined } = {},
): Promise<ProgramDecoder | null> {
  const isDecoder = ["get_max_seq_len", "get_vocab_size"].every((name) => program.metadata.has(name));
  if (!program.memory.holdsConstants || !isDecoder) return null;
  await warmPrompt(program, signal);
  const decoder = createDecoder(program);
  const start = performance.now();
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < STEPS_MAX; i++) {
    const before = performance.now();
    // The first token of a sequence is computed by `prefill`.
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
  const decoder = createDecoder(program);
  const page = storeOf(program)?.layout.pagePositions ?? Number.POSITIVE_INFINITY;
  const most = Math.min(program.count("get_max_seq_len"), decoder.contextLength, page - 1);
  const start = performance.now();
  for (let run = 0; run < PROMPT_RUNS; run++) {
    const isShort = run < SHORT_RUNS;
    if (!isShort && performance.now() - start > PROMPT_MS) break;
    const tokens = isShort ? SHORT_PROMPT : LONG_PROMPT - (run % 6);
    decoder.rewind(0);
    await decoder.prefill(new Array(Math.min(tokens, most)).fill(0), { signal });
  }
  await decoder.dispose();
}
