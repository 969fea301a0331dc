/** Makes decoders of a loaded program. Those of one program share its scheduler, where it has a paged KV cache. */
import { checkFields, checkWhole } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import { type LoadedProgram, storeOf } from "../runtime/program.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { Scheduler } from "./scheduler.ts";
import { SequenceDecoder } from "./sequence-decoder.ts";
import { SessionDecoder } from "./session-decoder.ts";

/** How the sequences of a program share steps. */
export interface SchedulingOptions {
  /**
   * Tokens of a step that computes parts of prompts beside answers under way, the answers' tokens included (vLLM:
   * max_num_batched_tokens). The time of such a step is the longest gap between two tokens of an answer; more tokens
   * compute prompts faster. Prompts get at least half of them. Default: 64. Steps of prompts alone take four times as many
   * while no other requests come.
   */
  readonly prefillTokens?: number | undefined;
}

const PREFILL_TOKENS = 64;

const schedulers = new WeakMap<LoadedProgram, Scheduler>();

/** Makes the scheduler of a program with a paged KV cache. InvalidArgumentError for options out of range. */
export function scheduleWith(program: LoadedProgram, { prefillTokens = PREFILL_TOKENS }: SchedulingOptions = {}): void {
  checkWhole("prefillTokens", prefillTokens, 1);
  const store = storeOf(program);
  if (store) schedulers.set(program, new Scheduler(program, store, { prefillTokens }));
}

/**
 * Makes a decoder with an empty sequence of its own. Decoders of one program compute requests that come at the same time in
 * common steps. Its prefix cache holds what decoders of the same `scope` have computed; all decoders without a scope share
 * one. InvalidFileError for a program without a method `forward`.
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
