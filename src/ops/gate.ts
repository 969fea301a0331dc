/** Gated activations (Shazeer 2020) of two tensors or of the halves of one, and the gate of gpt-oss. */
import { type ActivationName, activations } from "../kernels/families/gate/activations.ts";
import { clampedGate, gate, gateHalves } from "../kernels/families/index.ts";
import { isSameShape } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { result } from "./elementwise.ts";
import { rowsOf } from "./linear.ts";
import { defineOperator } from "./operator.ts";

/** The activation of the gate, one of kernels/families/gate/activations.ts. */
function activationOf(args: Arguments<TensorSpec>): ActivationName {
  const name = args.string("activation");
  if (!activations.includes(name as ActivationName))
    args.fail("activation", `expected one of ${activations.join(", ")} but found "${name}"`);
  return name as ActivationName;
}

/** The shape that gate and up share; ShapeError where they differ. */
function sharedShape(args: Arguments<TensorSpec>): TensorSpec {
  const [gate, up] = [args.tensor("gate", "f32"), args.tensor("up", "f32")];
  if (!isSameShape(gate.shape, up.shape))
    args.fail("up", `expected the shape of gate [${gate.shape}] but found [${up.shape}]`);
  return { dtype: "f32", shape: gate.shape };
}

/** out = activation(gate) * up. */
export const gateOperator = defineOperator({
  schema: "lowbit::gate.out(Tensor gate, Tensor up, str activation, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: gate,
  inPlace: ["gate", "up"],
  rowwise: ["gate", "up"],
  shape(args) {
    activationOf(args);
    return sharedShape(args);
  },
  prepare: (args) => ({
    gate: args.tensor("gate").data as Float32Array,
    up: args.tensor("up").data as Float32Array,
    activation: activationOf(args),
    ...result(args),
  }),
});

/**
 * out = activation(gate) * up, where gate_up [..., 2n] has the columns of gate, then those of up. Passes make this
 * operator.
 */
export const gateHalvesOperator = defineOperator({
  schema: "lowbit::gate_halves.out(Tensor gate_up, str activation, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: gateHalves,
  shape(args) {
    activationOf(args);
    const { shape } = args.tensor("gate_up", "f32");
    const width = shape.at(-1) ?? 0;
    if (width === 0 || width % 2 !== 0) args.fail("gate_up", `expected an even last dimension but found [${shape}]`);
    return { dtype: "f32", shape: shape.with(-1, width / 2) };
  },
  prepare: (args) => ({
    ...rowsOf(args.tensor("out")),
    gateUp: args.tensor("gate_up").data as Float32Array,
    activation: activationOf(args),
    y: args.tensor("out").data as Float32Array,
  }),
});

/** y = (clamp(up, -limit, limit) + 1) * c * sigmoid(slope * c), c = min(gate, limit): the gate of gpt-oss (OpenAI 2025). */
export const clampedGateOperator = defineOperator({
  schema: "lowbit::clamped_gate.out(Tensor gate, Tensor up, float slope, float limit, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: clampedGate,
  inPlace: ["gate", "up"],
  rowwise: ["gate", "up"],
  shape: sharedShape,
  prepare: (args) => ({
    gate: args.tensor("gate").data as Float32Array,
    up: args.tensor("up").data as Float32Array,
    slope: args.number("slope"),
    limit: args.number("limit"),
    ...result(args),
  }),
});
