/** Checks that operators make on constants before a program runs. */
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { argumentIndex, qualifiedName } from "../ops/schema.ts";
import type { Program } from "../program/program.ts";
import { tensorBytes } from "../program/verify.ts";
import { plannedArguments } from "./calls/call-values.ts";

/**
 * Lets operators check the constants of their calls. `isMapped`: whether constants may belong to a mapped file, which is
 * then read beside the mapping, so that no more of it is paged in.
 */
export async function checkConstants(
  { methods, constants }: Program,
  registry: OperatorRegistry,
  memories: readonly Uint8Array[],
  isMapped: boolean,
): Promise<void> {
  for (const method of methods)
    for (const step of method.instructions) {
      if (step.kind !== "kernel") continue;
      const operator = registry.find(qualifiedName(method.operators[step.operator]!));
      await operator?.checkConstants?.(plannedArguments(method, step.args, operator.schema), (argument) => {
        const value = method.values[step.args[argumentIndex(operator.schema, argument)]!]!;
        if (value.kind !== "tensor" || value.constant === null) return null;
        const [{ data }, bytes] = [constants[value.constant]!, memories[value.constant]!];
        return {
          name: value.name ?? `constant ${value.constant}`,
          byteLength: tensorBytes(value),
          read: async (offset, length) =>
            isMapped && data.readRange ? data.readRange(offset, length) : bytes.subarray(offset, offset + length),
        };
      });
    }
}
