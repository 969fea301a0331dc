/** Interface of decoders: token ids in, logits out, whether the program's KV cache is paged or contiguous. */
import type { LoadedProgram } from "../runtime/program.ts";
import type { ComputeOptions, Decoder } from "../text/decoder.ts";

/** One sequence of a loaded program, token by token: it takes the ids of a prompt or the next id and gives logits. */
export interface ProgramDecoder extends Decoder {
  /** The program's file. */
  readonly file: string;
  /** Number of logits of a token (V). */
  readonly vocabularySize: number;
  /** Most tokens of which `allLogits` gives logits at once; 0 for a program that gives those of the last token only. */
  readonly logitRows: number;
  prefill(ids: readonly number[], options?: ComputeOptions): Promise<Float32Array>;
  step(id: number, options?: ComputeOptions): Promise<Float32Array>;
  /**
   * Forgets all tokens from `position` on. InvalidArgumentError while a call is under way, since its tokens are not
   * appended yet.
   */
  rewind(position: number): void;
  /** Appends `ids` and gives the logits of each, [T, V]. The array may be overwritten by the next call. */
  allLogits(ids: readonly number[], options?: ComputeOptions): Promise<Float32Array>;
  /**
   * Makes another decoder with the same tokens, which goes on by itself and shares their keys and values where the program
   * has a paged KV cache. InvalidArgumentError while a call is under way, and after `dispose`.
   */
  fork(): ProgramDecoder;
  /** Ends the sequence; the decoder must not be used any more. */
  dispose(): Promise<void>;
}

/** Method for sequences longer than the metadata `get_long_context_from`, in programs that have it. */
export const LONG_METHOD = "forward_long";

/** Method of programs with a draft head: takes tokens and the hidden states before them, gives logits. */
export const DRAFT_METHOD = "draft";

/** The method that computes a sequence of `length` tokens, from its first token on. */
export function methodFor(program: LoadedProgram, length: number): string {
  return length > program.count("get_long_context_from", Number.POSITIVE_INFINITY) ? LONG_METHOD : "forward";
}
