/** Options of compiling a model, and their checks. */
import { shown } from "../arguments.ts";
import type { AbortOptions } from "../checkpoint/model.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";

/** Who runs a program: `lowbit` itself, or ExecuTorch, too. */
export const targets = ["lowbit", "executorch"] as const;
/** Who runs a program: one of `targets`. */
export type Target = (typeof targets)[number];

/** How a checkpoint becomes a program. Every field has a default. */
export interface CompileModelOptions extends AbortOptions {
  /** The CPU that weights are packed for. Default: this one. */
  readonly cpu?: Cpu;
  /** Most tokens of one call; longer prompts are run in chunks. Default: 512, or the context if that is shorter. */
  readonly maxSeqLen?: number | undefined;
  /** Positions that the KV cache of a program for ExecuTorch holds. Default: the model's, at most 2048. Others choose it when they load. */
  readonly maxContextLen?: number | undefined;
  /** Logits [1, V] of the last token (default), or [1, T, V] of all, of a program for ExecuTorch. Others give those of the rows that are asked for. */
  readonly logits?: "last" | "all";
  /** Who runs the program. For ExecuTorch, it calls operators that ExecuTorch has, and weights are in TorchAO's layout. Default: lowbit. */
  readonly target?: Target | undefined;
}

/** Values of the options that are one of some names. */
const choices = { logits: ["last", "all"], target: targets } as const;

/** InvalidArgumentError for an option whose value is none of its names. */
export function checkChoices(options: Partial<CompileModelOptions>): void {
  for (const [name, known] of Object.entries(choices)) {
    const value = options[name as keyof typeof choices];
    if (value !== undefined && !known.some((choice) => choice === value))
      throw new InvalidArgumentError(`${name}: expected ${known.join(" or ")} but found ${shown(value)}`);
  }
}
