/** What GGUF files call the tensors of mixtures of experts. */

/** Names of the router and of the tensors of all experts, which are stacks of matrices, in a module. */
export function expertParts(module: string, router = "gate"): Readonly<Record<string, string>> {
  const stacks = ["gate", "up", "down"].map((name) => [`ffn_${name}_exps`, `${module}.experts.${name}_exps`]);
  return { ffn_gate_inp: `${module}.${router}`, ...Object.fromEntries(stacks) };
}
