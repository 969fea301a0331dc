/** GELU value by value, as the gates have it. */
import type { UnaryArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { elementwise, erfGegluFormula, type Formula, gegluFormula, unary } from "./elementwise.ts";

const alone =
  (formula: Formula): Formula =>
  (operands) => [operands.b.set(operands.constants.floats(1)), formula(operands)];

export const geluWasm: Kernel<UnaryArgs> = elementwise("gelu", alone(erfGegluFormula), unary);
export const geluTanhWasm: Kernel<UnaryArgs> = elementwise("gelu_tanh", alone(gegluFormula), unary);
