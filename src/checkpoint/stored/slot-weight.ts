/** The state of a slot's weight, which quantizing, calibrating and encoding change. */
import { InvalidArgumentError } from "../../errors.ts";
import type { WeightSlot } from "../../model/decoder.ts";
import type { Weight } from "../../ops/weight.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import type { Correction } from "./corrected-rows.ts";
import type { StoredWeight } from "./weight-storage.ts";

/** The state of a slot's weight. */
export type WeightState =
  /** The weight stays as the checkpoint stores it. */
  | { readonly kind: "stored" }
  /** The weight is quantized when it is read; with an algorithm that needs a text, only after calibration. */
  | {
      readonly kind: "configured";
      readonly config: QuantizationConfig;
      /** How much errors of each column count, by a text, for algorithm "imatrix". */
      readonly importance?: Float32Array;
      /** Sums by which GPTQ chooses the weights of a row together; null where it does not reduce the error. */
      readonly correction?: Correction | null;
    }
  /** The weight was quantized with a calibration text. */
  | { readonly kind: "calibrated"; readonly config: QuantizationConfig; readonly load: () => Promise<QuantizedWeights> }
  /** Another weight, of any format, replaces the checkpoint's. */
  | { readonly kind: "replaced"; readonly weight: Weight };

/** A slot of a model, and its weight. */
export interface SlotWeight {
  /** Place in the model that takes the weight. */
  readonly slot: WeightSlot;
  /** The stored weight in a format of its own; null for a plain tensor. */
  readonly stored: StoredWeight | null;
  /** State of the weight: stored, configured, calibrated or replaced. */
  readonly state: WeightState;
}

export const asStored: WeightState = { kind: "stored" };

/** The configuration of a slot's weight; undefined for none. */
export function configIn(state: WeightState): QuantizationConfig | undefined {
  return state.kind === "configured" || state.kind === "calibrated" ? state.config : undefined;
}

/** Whether the weight depends on a calibration text. */
export function isByText(state: WeightState): boolean {
  return state.kind === "calibrated" || (state.kind === "configured" && state.importance !== undefined);
}

/** The weight in a format of its own, stored or replaced; null for the checkpoint's plain tensor. */
export function ownWeight({ state, stored }: SlotWeight): Weight | null {
  return state.kind === "replaced" ? state.weight : stored;
}

/** InvalidArgumentError, with a remedy, for a slot that cannot have a configuration. */
export function checkConfigurable(weight: SlotWeight): void {
  const own = ownWeight(weight);
  if (!own) return;
  const { slot, state } = weight;
  const what = state.kind === "replaced" ? "was given weights of format" : "is stored as";
  throw new InvalidArgumentError(
    `${slot.name}: ${what} ${own.format.kind} and is not quantized again; give configurations for other layers only (embedding, head)`,
  );
}
