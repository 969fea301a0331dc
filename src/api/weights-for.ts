/** The weights of a model in the formats that programs of a target have. */
import type { Model } from "../checkpoint/model.ts";
import { holdsFor } from "../checkpoint/weight-origins.ts";
import { InvalidArgumentError } from "../errors.ts";
import { EXECUTORCH_LAYOUT } from "../executorch/compile/lowering.ts";
import type { WeightLookup } from "../model/decoder.ts";
import type { Target } from "./compile-options.ts";

/** The compile options that decide how weights are stored. */
export interface TargetOptions {
  readonly target?: Target | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Looks weights up in the formats of programs with these options. `unread`: only for graphs, so that nothing is read. */
export function weightsFor(model: Model, options: TargetOptions, unread: boolean): WeightLookup {
  const holds = holdsFor(options.target ?? "lowbit");
  const use = { signal: options.signal, layout: layoutFor(model, options.target), holds, unread };
  return (name) => model.weight(name, use);
}

/** The packed layout that a target requires; undefined where it requires none. */
function layoutFor({ layout }: Model, target: Target | undefined): string | undefined {
  if (target !== "executorch") return undefined;
  if (layout !== null && layout !== EXECUTORCH_LAYOUT)
    throw new InvalidArgumentError(`target executorch: expected layout ${EXECUTORCH_LAYOUT} but found ${layout}`);
  return EXECUTORCH_LAYOUT;
}
