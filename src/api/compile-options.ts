/** Options of compiling a model, and their checks. */
import { shown } from "../arguments.ts";
import type { AbortOptions } from "../checkpoint/model.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";

/** The runtimes that a program can be compiled for: `lowbit` alone, or ExecuTorch as well. */
export const targets = ["lowbit", "executorch"] as const;
/** A runtime that a program is compiled for: one of `targets`. */
export type Target = (typeof targets)[number];

/** How a checkpoint becomes a program. Every field has a default. */
export interface CompileModelOptions extends AbortOptions {
  /** The CPU that weights are packed for. Default: this machine's. */
  readonly cpu?: Cpu;
  /**
   * Most tokens of one call; longer prompts are computed in chunks. Default: 512, or the context length if that is shorter.
   */
  readonly maxSeqLen?: number | undefined;
  /**
   * Positions of the KV cache of a program for ExecuTorch. Default: the model's context length, at most 2048. Other
   * programs take it when they are loaded, as `contextLength`.
   */
  readonly maxContextLen?: number | undefined;
  /**
   * Which logits a program for ExecuTorch gives: [1, V] of the last token (default), or [1, T, V] of all. Other programs
   * give those of the tokens that a call asks for.
   */
  readonly logits?: "last" | "all";
  /**
   * The runtime that the program is for. With "executorch", it calls only operators that ExecuTorch has, and weights are in
   * TorchAO's layout. Default: "lowbit".
   */
  readonly target?: Target | undefined;
}

/** Known values of the options that are one of several names. */
const choices = { logits: ["last", "all"], target: targets } as const;

/** InvalidArgumentError for an unknown value of an option that is one of several names. */
export function checkChoices(options: Partial<CompileModelOptions>): void {
  for (const [name, known] of Object.entries(choices)) {
    const value = options[name as keyof typeof choices];
    if (value !== undefined && !known.some((choice) => choice === value))
      throw new InvalidArgumentError(`${name}: expected ${known.join(" or ")} but found ${shown(value)}`);
  }
}
