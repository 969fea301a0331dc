/**
 * Constants from which calls only look up rows (embeddings): of a mapped file, only the rows of used tokens come into
 * memory.
 */
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { DataSource, Program } from "../program/program.ts";

/** Indices of constants that calls look rows up in, and that no other call reads. */
export function lookedUpConstants({ methods, constants }: Program, registry: OperatorRegistry): number[] {
  const tables = new Set<number>();
  const others = new Set<DataSource>();
  for (const { instructions, operators, values } of methods)
    for (const instruction of instructions) {
      if (instruction.kind !== "kernel") continue;
      const operator = registry.find(qualifiedName(operators[instruction.operator]!));
      for (const [i, arg] of instruction.args.entries()) {
        const value = values[arg]!;
        if (value.kind !== "tensor" || value.constant === null) continue;
        const isTable = operator?.tables.includes(operator.schema.args[i]?.name ?? "") ?? false;
        if (isTable) tables.add(value.constant);
        else others.add(constants[value.constant]!.data);
      }
    }
  return [...tables].filter((constant) => !others.has(constants[constant]!.data));
}
