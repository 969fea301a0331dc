/** A sequence of a program's store as the decoder that the generate loop drives: the scheduler runs it beside others. */
import { checkIds } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Sequence } from "../sequences/sequence.ts";
import type { ComputeOptions } from "../text/generate.ts";
import { LONG_METHOD, type ProgramDecoder } from "./program-decoder.ts";
import type { Scheduler } from "./scheduler.ts";

export class SequenceDecoder implements ProgramDecoder {
  readonly contextLength: number;
  readonly vocabularySize: number;
  readonly logitRows: number;
  readonly #program: LoadedProgram;
  readonly #scheduler: Scheduler;
  /** Sequences of more tokens are computed by `LONG_METHOD`, from their first token on. */
  readonly #longFrom: number;
  /** Ids of the context: what the sequence holds of them, the store decides. */
  readonly #ids: number[] = [];
  #sequence: Sequence | null = null;
  #isBusy = false;
  #isDisposed = false;

  constructor(program: LoadedProgram, scheduler: Scheduler, contextLength: number) {
    this.contextLength = contextLength;
    this.vocabularySize = program.count("get_vocab_size");
    this.logitRows = scheduler.limits.logitRows;
    this.#longFrom = program.count("get_long_context_from", Number.POSITIVE_INFINITY);
    this.#program = program;
    this.#scheduler = scheduler;
  }

  get position(): number {
    return this.#ids.length;
  }

  async dispose(): Promise<void> {
    this.#isDisposed = true;
    if (this.#sequence) this.#scheduler.close(this.#sequence);
    this.#sequence = null;
  }

  rewind(position: number): void {
    this.#checkIdle();
    if (!Number.isInteger(position) || position < 0 || position > this.position)
      throw new InvalidArgumentError(`rewind: expected a position up to ${this.position} but found ${position}`);
    this.#ids.length = position;
    const sequence = this.#sequence;
    if (sequence && sequence.position > position) sequence.truncate(position);
  }

  /** Where an abort ends it, parts of the prompt may have been appended: `position` says. Other errors append nothing. */
  async prefill(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    checkIds("prefill", ids);
    if (ids.length === 0) throw new InvalidArgumentError("prefill: expected at least one token");
    return this.#append(ids, this.position + ids.length - 1, options);
  }

  step(id: number, options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append([id], this.position, options);
  }

  allLogits(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append(ids, this.position, options);
  }

  /** Computes ids after those of the context, and gives logits from a position on. */
  async #append(ids: readonly number[], logitsFrom: number, { signal }: ComputeOptions): Promise<Float32Array> {
    this.#program.checkUsable();
    this.#checkIdle();
    this.#checkIds(ids);
    this.#isBusy = true;
    const before = this.position;
    for (const id of ids) this.#ids.push(id);
    const sequence = this.#sequenceFor(this.position > this.#longFrom ? LONG_METHOD : "forward");
    try {
      return await this.#scheduler.run({ sequence, method: sequence.branch, ids: this.#ids, logitsFrom, signal });
    } catch (error) {
      this.#ids.length = signal?.aborted ? Math.max(before, sequence.position) : before;
      if (sequence.position > this.position) sequence.truncate(this.position);
      throw error;
    } finally {
      this.#isBusy = false;
    }
  }

  /** The sequence that a method computes; another method's keys and values are of no use to it. */
  #sequenceFor(method: string): Sequence {
    if (this.#sequence?.branch === method && !this.#sequence.isDisposed) return this.#sequence;
    if (this.#sequence) this.#scheduler.close(this.#sequence);
    this.#sequence = this.#scheduler.open(method);
    return this.#sequence;
  }

  #checkIdle(): void {
    if (this.#isDisposed) throw new InvalidArgumentError("decoder: was disposed of");
    if (this.#isBusy)
      throw new InvalidArgumentError("decoder: expected one call at a time; await the last, or make another decoder");
  }

  #checkIds(ids: readonly number[]): void {
    const length = this.position + ids.length;
    if (length > this.contextLength)
      throw new ContextLengthError(
        `expected at most ${this.contextLength} tokens but found ${length}; load the program with a longer context (--context), as far as the model and memory have it`,
      );
    for (const id of ids)
      if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize)
        throw new InvalidArgumentError(`token id: expected 0..${this.vocabularySize - 1} but found ${id}`);
  }
}
