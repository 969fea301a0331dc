/** Stand-in without an interpreter, which only programs of other exporters need. */
import type * as original from "../../../executorch/interpreter.ts";

export const isInterpreted: typeof original.isInterpreted = () => false;
export const Interpreter = class {} as unknown as typeof original.Interpreter;
