/** GGUF's names for the tensors of mixtures of experts. */
import type { OpenTensors } from "../tensor-source.ts";

/** Names of the router and of the stacked matrices of all experts within a module; "" for the layer itself. */
export function expertParts(module: string, router = "gate"): Readonly<Record<string, string>> {
  const within = module === "" ? "" : `${module}.`;
  const stacks = ["gate", "up", "down"].map((name) => [`ffn_${name}_exps`, `${within}experts.${name}_exps`]);
  return { ffn_gate_inp: `${within}${router}`, ...Object.fromEntries(stacks) };
}

/** Names of the shared expert, which all tokens use, and of its gate. */
export function sharedParts(module: string): Readonly<Record<string, string>> {
  const matrices = ["gate", "up", "down"].map((name) => [`ffn_${name}_shexp`, `${module}.${name}_proj`]);
  return { ffn_gate_inp_shexp: `${module}_gate`, ...Object.fromEntries(matrices) };
}

/** Reshapes the shared expert's gate, a vector in files, to a matrix of one row. */
export function withSharedGate(tensors: OpenTensors): OpenTensors {
  const isGate = (name: string, { length }: readonly number[]) =>
    name.endsWith(".shared_expert_gate.weight") && length === 1;
  const shaped = <S extends { readonly shape: readonly number[] }>(name: string, stored: S): S =>
    isGate(name, stored.shape) ? { ...stored, shape: [1, ...stored.shape] } : stored;
  return {
    ...tensors,
    info: (name) => shaped(name, tensors.info(name)),
    read: async (name) => shaped(name, await tensors.read(name)),
  };
}
