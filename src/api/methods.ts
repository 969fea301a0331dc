/** Programs of a user's own methods, which need not be language models. */
import { checkOptions, shown } from "../arguments.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { checkPath } from "../node-file.ts";
import { saveProgram } from "../program/save.ts";
import { operators } from "../registry/operators.ts";
import { LoadedProgram } from "../runtime/program.ts";
import { type ProgramFileOptions, withProgramFile } from "./program-file.ts";

/**
 * Captures methods and writes them as one `.pte` file. `cpu`: the CPU that weights are packed for; default: this machine's.
 */
export async function exportMethods(
  methods: readonly MethodSource[],
  path: string,
  options: { readonly cpu?: Cpu } = {},
): Promise<void> {
  if (!Array.isArray(methods) || methods.length === 0)
    throw new InvalidArgumentError(`methods: expected a list of at least one but found ${shown(methods)}`);
  for (const method of methods)
    if (typeof method?.name !== "string" || !Array.isArray(method.inputs) || typeof method.build !== "function")
      throw new InvalidArgumentError(
        `methods: expected methods with name, inputs and build but found ${shown(method)}`,
      );
  checkPath(path);
  checkOptions(options);
  await saveProgram(compile(methods, { registry: operators, cpu: options.cpu ?? hostCpu() }), path);
}

/**
 * Loads a `.pte` file of any methods; `createSession().run(name, inputs)` runs one of them. Throws as `loadProgram` does.
 */
export function loadMethods(path: string, options: ProgramFileOptions = {}): Promise<LoadedProgram> {
  return withProgramFile(path, options, (program) => LoadedProgram.load(program, options));
}
