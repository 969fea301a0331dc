/** Tells what becomes of a checkpoint's weights: kept as stored, or quantized anew. */
import { checkFields, checkList } from "../arguments.ts";
import { blockTypeFor } from "../formats/gguf/encode-blocks.ts";
import type { LowBitTensor } from "../formats/tensor-source.ts";
import { torchaoUniversal } from "../kernels/layout/torchao-linear.ts";
import type { WeightSlot } from "../model/decoder.ts";
import type { ActivationKind } from "../quantized.ts";
import { checkModel, type Model } from "./model.ts";

/**
 * What becomes of one weight of a checkpoint: its stored type, and whether it is kept as stored, quantized or kept float.
 */
export interface WeightOrigin {
  /** Name of the weight. */
  readonly name: string;
  /** Type in which the checkpoint stores the weight: "Q4_0", "bf16", "aqlm". */
  readonly stored: string;
  /** What becomes of the weight: kept as stored, quantized (from floats, or again), or kept float. */
  readonly treatment: "kept as stored" | "quantized" | "float";
  /** Activations of a low-bit matrix that is kept as stored; absent for others. */
  readonly activations?: ActivationKind;
}

/** Where weights go: a program of ours or for ExecuTorch, or files of other libraries. */
export type Destination = "lowbit" | "executorch" | "torchao" | "gguf";

/** Which stored low-bit weights a destination can hold as they are. */
export function holdsFor(destination: Destination): (stored: LowBitTensor) => boolean {
  if (destination === "lowbit") return () => true;
  if (destination === "gguf")
    return ({ spec, levels, minima, order }) => !minima && !order && typeof blockTypeFor(spec, levels) !== "string";
  if (destination === "torchao") return ({ minima, order, spec }) => !minima && !order && !spec.hasLevels;
  return ({ spec, order }) => !order && torchaoUniversal.refusal({ ...spec, scaleDType: "f32" }) === null;
}

/**
 * Lists what becomes of each tensor, in the model's order. A tied slot is not listed unless it is quantized differently
 * from its source (TorchAO's files keep one tensor for both).
 */
export function weightOrigins(model: Model, destination: Destination = "lowbit"): readonly WeightOrigin[] {
  checkModel(model);
  const holds = holdsFor(destination);
  const { tensors } = model.checkpoint;
  return model.network.slots.flatMap((slot): WeightOrigin[] => {
    const { name, tiedTo } = slot;
    if (tiedTo !== null && (destination === "torchao" || !isQuantizedApart(model, slot))) return [];
    const source = tiedTo ?? name;
    const stored =
      model.slotWeight(source).stored?.format.kind ?? tensors.storedType?.(source) ?? tensors.info(source).dtype;
    const isRun = destination === "lowbit" || destination === "executorch";
    const activations = isRun && slot.role === "linear" ? model.keptActivations(name, { holds }) : null;
    return [{ name, stored, treatment: treatmentOf(model, name, holds), ...(activations && { activations }) }];
  });
}

/** Whether a tied slot is a tensor of its own, because it is quantized differently from its source, or was replaced. */
export function isQuantizedApart(model: Model, slot: WeightSlot): boolean {
  checkModel(model);
  checkFields("slot", slot, ["name", "tiedTo"], "one of model.network.slots");
  const { name, tiedTo } = slot;
  if (tiedTo !== null && model.slotWeight(name).state.kind === "replaced") return true;
  const config = model.configOf(name);
  return tiedTo !== null && config !== undefined && config !== model.configOf(tiedTo);
}

function treatmentOf(model: Model, name: string, holds: ReturnType<typeof holdsFor>): WeightOrigin["treatment"] {
  const isOther = model.storedFormat(name) !== null;
  if (model.slotWeight(name).state.kind === "replaced") return isOther ? "quantized" : "float";
  if (isOther || model.keptAsStored(name, holds)) return "kept as stored";
  return model.configOf(name) ? "quantized" : "float";
}

/** A line for people: "kept as stored, for 8-bit activations: 154 Q4_0; quantized: 1 Q6_K; float: 45 F32". */
export function describeOrigins(origins: readonly WeightOrigin[]): string {
  checkList("origins", origins, ["treatment"], "weightOrigins()");
  const treatments = [
    ["kept as stored", "int8", "kept as stored, for 8-bit activations"],
    ["kept as stored", "int8_per_token", "kept as stored, for 8-bit activations with one scale a row"],
    ["kept as stored", "float", "kept as stored, for float activations"],
    ["kept as stored", undefined, "kept as stored"],
    ["quantized", undefined, "quantized"],
    ["float", undefined, "float"],
  ] as const;
  const parts = treatments.flatMap(([treatment, activations, title]) => {
    const counts = new Map<string, number>();
    for (const origin of origins)
      if (origin.treatment === treatment && origin.activations === activations)
        counts.set(origin.stored, (counts.get(origin.stored) ?? 0) + 1);
    const shown = [...counts].map(([stored, count]) => `${count} ${stored}`).join(", ");
    return shown === "" ? [] : [`${title}: ${shown}`];
  });
  return parts.join("; ");
}
