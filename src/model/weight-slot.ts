/** Weight slots: the tensors that a network expects in a checkpoint. */
import type { Weight } from "../ops/weight.ts";

/** A tensor that the architecture expects in the checkpoint. */
export interface WeightSlot {
  /** Name of the weight in Hugging Face's checkpoints, such as "model.layers.0.mlp.up_proj.weight". */
  readonly name: string;
  /** Shape of the weight; [n, k] for matrices. */
  readonly shape: readonly number[];
  /**
   * How the model uses the weight: as rows to look up, as a linear layer's matrix, or as a vector. The few matrices that
   * always stay floats count as vectors.
   */
  readonly role: "embedding" | "linear" | "vector";
  /** Slot whose tensor this one shares (tied lm_head); null for its own. */
  readonly tiedTo: string | null;
  /**
   * Heads whose rows the checkpoint stores in pairs for RoPE of neighbours, rows 2i and 2i + 1. The network rotates rows i
   * and i + half, as Hugging Face's Llama does. Absent where the checkpoint's order is the network's.
   */
  readonly pairs?: PairedRows;
  /**
   * Set where rounding this layer harms the network's results more than others: its weights, or its inputs, too. `quantize`
   * gives such weights at least 8 bits, and keeps such inputs float. Absent for other layers.
   */
  readonly delicate?: "weights" | "inputs";
}

/** Heads whose rotated rows are stored as pairs of neighbours. */
interface PairedRows {
  /** Rows of a head. */
  readonly headDim: number;
  /** Number of a head's rows that are rotated, the first ones. */
  readonly rotated: number;
}

/** The module of a tensor, whose name begins the names of its tensors: "model.layers.0.mlp.up_proj". */
export function moduleOf(tensor: string): string {
  return tensor.replace(/\.\w+$/, "");
}

/** Gives weights by slot name, in the formats they run in. */
export type WeightLookup = (name: string) => Weight;

/** The slot of a norm's or bias's vector of `size` values. */
export function vectorSlot(name: string, size: number): WeightSlot {
  return { name, shape: [size], role: "vector", tiedTo: null };
}

/** The slot of a depthwise convolution of `taps` inputs a channel. */
export function tapsSlot(name: string, channels: number, taps: number): WeightSlot {
  return { name, shape: [channels, 1, taps], role: "vector", tiedTo: null };
}

/** The slots of a linear layer from `k` values to `n`: its matrix, and its bias where it has one. */
export function linearSlots(module: string, n: number, k: number, hasBias = false): WeightSlot[] {
  const weight: WeightSlot = { name: `${module}.weight`, shape: [n, k], role: "linear", tiedTo: null };
  return hasBias ? [weight, vectorSlot(`${module}.bias`, n)] : [weight];
}

/** The slot of a matrix that always stays floats, such as a router's. */
export function matrixSlot(name: string, n: number, k: number): WeightSlot {
  return { name, shape: [n, k], role: "vector", tiedTo: null };
}
