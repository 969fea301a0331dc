/** Registers AQLM's operators: all that running its programs takes. */
import { registerOperator } from "lowbit/extension";
import { aqlmOperators } from "./operators.ts";

for (const operator of aqlmOperators) registerOperator(operator);
