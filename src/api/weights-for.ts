/** The weights of a model as the programs of a target have them. */
import type { Model } from "../checkpoint/model.ts";
import { holdsFor } from "../checkpoint/weight-origins.ts";
import { InvalidArgumentError } from "../errors.ts";
import { EXECUTORCH_LAYOUT } from "../executorch/compile/lowering.ts";
import type { WeightLookup } from "../model/decoder.ts";
import type { Target } from "./compile-options.ts";

/** What of the options of compiling says how weights are stored. */
export interface TargetOptions {
  readonly target?: Target | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Weights in the formats in which programs of these options have them; `unread`: for graphs alone. */
export function weightsFor(model: Model, options: TargetOptions, unread: boolean): WeightLookup {
  const holds = holdsFor(options.target ?? "lowbit");
  const use = { signal: options.signal, layout: layoutFor(model, options.target), holds, unread };
  return (name) => model.weight(name, use);
}

/** The packed layout that a target asks for, if it does. */
function layoutFor({ layout }: Model, target: Target | undefined): string | undefined {
  if (target !== "executorch") return undefined;
  if (layout !== null && layout !== EXECUTORCH_LAYOUT)
    throw new InvalidArgumentError(`target executorch: expected layout ${EXECUTORCH_LAYOUT} but found ${layout}`);
  return EXECUTORCH_LAYOUT;
}
