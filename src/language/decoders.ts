/** Decoders of a loaded program: those of one program share its scheduler, where it has a store of sequences. */
import { checkFields, checkWhole } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import { type LoadedProgram, storeOf } from "../runtime/program.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { Scheduler } from "./scheduler.ts";
import { SequenceDecoder } from "./sequence-decoder.ts";
import { SessionDecoder } from "./session-decoder.ts";

/** How the sequences of a program share its steps. */
export interface SchedulingOptions {
  /**
   * Tokens of a step that computes parts of prompts while answers are under way, those of the answers included: what such a
   * step takes is the longest gap between two of their tokens. More read prompts faster. Prompts are given half of them at
   * least. Default: 64. Prompts alone have four times as many, while no others come.
   */
  readonly prefillTokens?: number | undefined;
}

const PREFILL_TOKENS = 64;

const schedulers = new WeakMap<LoadedProgram, Scheduler>();

/** Makes the scheduler of a program that has a store of sequences. InvalidArgumentError for options out of range. */
export function scheduleWith(program: LoadedProgram, { prefillTokens = PREFILL_TOKENS }: SchedulingOptions = {}): void {
  checkWhole("prefillTokens", prefillTokens, 1);
  const store = storeOf(program);
  if (store) schedulers.set(program, new Scheduler(program, store, { prefillTokens }));
}

/**
 * A decoder of its own sequence, at its start. Several of one program run together: what they are asked at the same time
 * shares steps. It finds what those of its scope have computed: without one, of all that have none. InvalidFileError for a program
 * without a method `forward`.
 */
export function createDecoder(program: LoadedProgram, scope?: PrefixScope): ProgramDecoder {
  checkFields("program", program, ["checkUsable"], "one of loadProgram()");
  program.checkUsable();
  if (!program.has("forward")) throw new InvalidFileError(program.file, "expected a method forward but found none");
  const store = storeOf(program);
  if (!store) return new SessionDecoder(program);
  if (!schedulers.has(program)) scheduleWith(program);
  return new SequenceDecoder(program, schedulers.get(program)!, store.contextLength, { scope });
}
