/** Programs of methods of one's own, which need not be language models. */
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { openFile } from "../node-file.ts";
import { operators } from "../ops/registry.ts";
import { readProgram } from "../program/read.ts";
import { saveProgram } from "../program/save.ts";
import { LoadedProgram, type LoadOptions } from "../runtime/program.ts";

/** Captures methods and writes them as one `.pte` file. `cpu`: that weights are packed for; default: this one. */
export async function exportMethods(
  methods: readonly MethodSource[],
  path: string,
  options: { readonly cpu?: Cpu } = {},
): Promise<void> {
  await saveProgram(compile(methods, { registry: operators, cpu: options.cpu ?? hostCpu() }), path);
}

/** Loads a `.pte` file of any methods; `createSession().run(name, inputs)` runs one. */
export async function loadMethods(path: string, options: LoadOptions = {}): Promise<LoadedProgram> {
  const file = await openFile(path);
  try {
    return await LoadedProgram.load(await readProgram(file), options);
  } finally {
    await file.close();
  }
}
