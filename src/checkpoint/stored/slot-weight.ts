/** What the weight of a slot is: one state a slot, which quantizing, calibrating and encoding change. */
import { InvalidArgumentError } from "../../errors.ts";
import type { WeightSlot } from "../../model/decoder.ts";
import type { Weight } from "../../ops/weight.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import type { Correction } from "./corrected-rows.ts";
import type { StoredWeight } from "./weight-storage.ts";

/** The state of a slot's weight. */
export type WeightState =
  /** The weight is as the checkpoint stores it. */
  | { readonly kind: "stored" }
  /** To be quantized when it is read; with an algorithm that looks at activations, after calibration only. */
  | {
      readonly kind: "configured";
      readonly config: QuantizationConfig;
      /** What errors of each column count by a text, for algorithm "imatrix". */
      readonly importance?: Float32Array;
      /** By what algorithm "gptq" chooses the weights of a row together; null where it does not pay. */
      readonly correction?: Correction | null;
    }
  /** Quantized by the activations of a text. */
  | { readonly kind: "calibrated"; readonly config: QuantizationConfig; readonly load: () => Promise<QuantizedWeights> }
  /** Another weight, of any format, in place of the checkpoint's. */
  | { readonly kind: "replaced"; readonly weight: Weight };

/** A slot of a model, and its weight. */
export interface SlotWeight {
  /** Place in the model that takes the weight. */
  readonly slot: WeightSlot;
  /** The weight in a format of its own in which the checkpoint stores it; null for a plain tensor. */
  readonly stored: StoredWeight | null;
  /** What becomes of the weight: it stays as stored, has a configuration, is calibrated, or is replaced. */
  readonly state: WeightState;
}

export const asStored: WeightState = { kind: "stored" };

/** The configuration that a slot's weight has, or is to have. */
export function configIn(state: WeightState): QuantizationConfig | undefined {
  return state.kind === "configured" || state.kind === "calibrated" ? state.config : undefined;
}

/** Whether a text says what the weight becomes. */
export function isByText(state: WeightState): boolean {
  return state.kind === "calibrated" || (state.kind === "configured" && state.importance !== undefined);
}

/** The weight that is there in a format of its own or in place of the checkpoint's; null for the checkpoint's tensor. */
export function ownWeight({ state, stored }: SlotWeight): Weight | null {
  return state.kind === "replaced" ? state.weight : stored;
}

/** InvalidArgumentError for a slot that cannot be given a configuration, with what to do instead. */
export function checkConfigurable(weight: SlotWeight): void {
  const own = ownWeight(weight);
  if (!own) return;
  const { slot, state } = weight;
  const what = state.kind === "replaced" ? "was given weights of format" : "is stored as";
  throw new InvalidArgumentError(
    `${slot.name}: ${what} ${own.format.kind} and is not quantized again; give configurations for other layers only (embedding, head)`,
  );
}
