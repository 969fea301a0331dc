/**
 * Expected inputs of a linear layer without a text: mean squares, up to a common factor, estimated from the weights that
 * make them. Errors of weights with large inputs count more.
 */
import type { Network } from "../model/decoder.ts";
import type { ScalableActivation } from "../model/scalable.ts";
import type { Weight } from "../ops/weight.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { configIn, type SlotWeight } from "./stored/slot-weight.ts";

/** What the estimate needs of a model. */
interface WeightsOfModel {
  readonly network: Network;
  slotWeight(name: string): SlotWeight;
  storedFormat(name: string): string | null;
  weight(name: string, use?: { readonly float?: boolean }): Weight;
}

/**
 * Expected mean squares are the norm's factors to this power; less than 2, because channels with large factors often have
 * small values before the norm (least output error at 4 bits, of 1, 1.5 and 2, on SmolLM2-135M).
 */
const NORM_POWER = 1.5;

/** Expected mean squares of a linear layer's inputs, by its weight's slot; null where nothing is known of them. */
export async function expectedPower(model: WeightsOfModel, name: string): Promise<Float32Array | null> {
  const { slots, transformer } = model.network;
  const head = slots.findLast(({ role }) => role === "linear")?.name;
  const isShared = configIn(model.slotWeight(name).state)?.kind === "sharedEmbedding";
  if (transformer && (name === head || isShared))
    return normPower(model, `${transformer.lastNorm}.weight`, transformer.normOffset);
  const activation = readBy(model, name);
  if (!activation) return null;
  const { source, norm, rows, gate } = activation;
  if (norm) return normPower(model, source, norm.offset, rows);
  const made = await rowPower(model, source);
  const gating = gate && (gate.source === source ? made : await rowPower(model, gate.source));
  if (!made || (gate && !gating)) return null;
  return usable(
    Float32Array.from(rows, (row, c) => made[row]! * (gating ? gatePower(Math.sqrt(gating[gate!.rows[c]!]!)) : 1)),
  );
}

/** Expected mean squares of a norm's outputs, in the order of `rows`. */
async function normPower(
  model: WeightsOfModel,
  name: string,
  offset: number,
  rows?: Int32Array,
): Promise<Float32Array | null> {
  const gains = await gainsOf(model, name, offset);
  const power = gains.map((gain) => gain ** NORM_POWER);
  return usable(rows ? Float32Array.from(rows, (row) => power[row]!) : power);
}

function readBy({ network }: WeightsOfModel, name: string): ScalableActivation | undefined {
  return network.scalable.find(({ readers }) => readers.includes(name));
}

/** Magnitudes of a norm's factors. */
async function gainsOf(model: WeightsOfModel, name: string, offset: number): Promise<Float32Array> {
  const stored = toFloat32((await model.weight(name, { float: true }).load()) as Tensor);
  return stored.map((value) => Math.abs(value + offset));
}

/**
 * Expected mean squares of a linear layer's outputs, taking its inputs before the norm's factors as independent; null for
 * weights without float values.
 */
async function rowPower(model: WeightsOfModel, name: string): Promise<Float32Array | null> {
  if (model.slotWeight(name).state.kind === "calibrated" || model.storedFormat(name) !== null) return null;
  const activation = readBy(model, name);
  const gains = activation?.norm ? await gainsOf(model, activation.source, activation.norm.offset) : null;
  const { shape, load, loadRows } = model.weight(name, { float: true });
  const [n, k] = shape as [number, number];
  const squares = gains?.map((gain) => gain * gain) ?? new Float32Array(k).fill(1);
  const power = new Float32Array(n);
  let row = 0;
  for await (const part of loadRows ? loadRows() : [await load()]) {
    const values = toFloat32(part as Tensor);
    for (let start = 0; start < values.length; start += k, row++) {
      let sum = 0;
      for (let c = 0; c < k; c++) sum += values[start + c]! * values[start + c]! * squares[c]!;
      power[row] = sum;
    }
  }
  return power;
}

/** Step and end of the sum that approximates an integral over the normal distribution. */
const STEP = 0.25;
const END = 4;

/** Mean square of SiLU(x) for normal x with this standard deviation; GELU's is about the same. */
function gatePower(deviation: number): number {
  let sum = 0;
  let total = 0;
  for (let z = -END; z <= END; z += STEP) {
    const weight = Math.exp((-z * z) / 2);
    const x = z * deviation;
    sum += weight * (x / (1 + Math.exp(-x))) ** 2;
    total += weight;
  }
  return sum / total;
}

/** Mean squares divided by their mean; null unless they are finite and not all 0. */
function usable(power: Float32Array): Float32Array | null {
  const mean = power.reduce((sum, value) => sum + value, 0) / power.length;
  return mean > 0 && mean < Number.POSITIVE_INFINITY ? power.map((value) => value / mean) : null;
}
