/** What turns token ids into logits: a sequence of a program, whichever way the program keeps what it has read. */
import type { LoadedProgram } from "../runtime/program.ts";
import type { ComputeOptions, Decoder } from "../text/decoder.ts";

/** One sequence of a loaded program, token by token: it takes the ids of a prompt or the next id and gives logits. */
export interface ProgramDecoder extends Decoder {
  /** The program's file. */
  readonly file: string;
  /** Number of logits of a token. */
  readonly vocabularySize: number;
  /** Most tokens of which `allLogits` gives logits at once; 0 for a program that gives those of the last token only. */
  readonly logitRows: number;
  prefill(ids: readonly number[], options?: ComputeOptions): Promise<Float32Array>;
  step(id: number, options?: ComputeOptions): Promise<Float32Array>;
  /** Forgets all tokens from `position` on. InvalidArgumentError while a call is under way, which would append its own. */
  rewind(position: number): void;
  /** Logits of every token of `ids`, [T, V]. They may be reused by the next call. */
  allLogits(ids: readonly number[], options?: ComputeOptions): Promise<Float32Array>;
  /**
   * Another decoder with the same tokens, which goes on by itself and shares what was computed of them, where the program
   * keeps sequences. InvalidArgumentError while a call is under way, and after `dispose`.
   */
  fork(): ProgramDecoder;
  /** Ends the sequence; the decoder must not be used any more. */
  dispose(): Promise<void>;
}

/** Method that serves sequences longer than metadata `get_long_context_from`, in programs that have that. */
export const LONG_METHOD = "forward_long";

/** Method of programs that draft for themselves: logits of tokens and of the hidden states before them. */
export const DRAFT_METHOD = "draft";

/** The method that computes a sequence of `length` tokens, from its first on. */
export function methodFor(program: LoadedProgram, length: number): string {
  return length > program.count("get_long_context_from", Number.POSITIVE_INFINITY) ? LONG_METHOD : "forward";
}
