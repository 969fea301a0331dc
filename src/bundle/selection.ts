/** Generates the modules of a bundle that list its operators and kernels, in place of those that list all. */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Kernel } from "../kernels/contract.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { Program } from "../program/program.ts";
import { operators as allOperators } from "../registry/operators.ts";
import { type Build, importedParts, type Part, type Parts, partOf } from "./modules.ts";

const REGISTRY = "registry/operators";
const TABLE = "kernels/families/index";

/** The operators and kernels that bundles choose from: exports of the modules that the full lists import. */
export interface Sources {
  readonly operators: Parts;
  readonly kernels: Parts;
  /** Lists of kernels by family. */
  readonly families: Part;
}

export async function traceSources(build: Build): Promise<Sources> {
  const [operators, families] = [await importedParts(build, REGISTRY), await importedParts(build, TABLE)];
  const kernels = new Map(families);
  // Families that are not declared have hand-written lists, whose kernels come from the modules that these import.
  for (const list of [...families.keys()].filter((module) => module.endsWith("/kernels"))) {
    kernels.delete(list);
    for (const [module, part] of await importedParts(build, list)) kernels.set(module, part);
  }
  return { operators, kernels, families: await partOf(TABLE) };
}

/** Full names of the operators that a program calls. UnsupportedError lists those that no bundle can contain. */
export function calledOperators({ methods }: Program, sources: Sources): string[] {
  const names = [...new Set(methods.flatMap(({ operators }) => operators.map(qualifiedName)))].sort();
  const strange = names.filter((name) => !exportOf(sources.operators, name));
  if (strange.length > 0)
    throw new UnsupportedError(
      `bundle: operators ${strange.join(", ")} are registered from outside lowbit's core, such as AQLM's, and a bundle holds those of the core alone; load the program with the whole package`,
    );
  if (methods.some(({ delegates }) => delegates.length > 0))
    throw new UnsupportedError("bundle: the program calls delegates, which only ExecuTorch has");
  if (names.length === 0) throw new InvalidArgumentError("bundle: the program calls no operators");
  return names;
}

/** Where an operator or kernel is exported, by itself or in a list. */
interface Export {
  readonly module: string;
  readonly name: string;
  readonly isList: boolean;
}

function exportOf(modules: Parts, wanted: string): Export | undefined {
  const isWanted = (item: unknown) => (item as { name?: unknown } | null)?.name === wanted;
  for (const [module, part] of modules)
    for (const [name, value] of Object.entries(part)) {
      const isList = Array.isArray(value);
      if (isList ? value.some(isWanted) : typeof value === "object" && isWanted(value)) return { module, name, isList };
    }
  return undefined;
}

/** Import statements for exports, each under a unique name. */
class Imports {
  readonly #names = new Map<string, string>();
  readonly lines: string[] = [];
  readonly #to: (module: string) => string;

  constructor(to: (module: string) => string) {
    this.#to = to;
  }

  add({ module, name }: Export): string {
    const key = `${module} ${name}`;
    const known = this.#names.get(key);
    if (known) return known;
    const local = `part${this.#names.size}`;
    this.#names.set(key, local);
    this.lines.push(`import { ${name} as ${local} } from ${JSON.stringify(this.#to(module))};`);
    return local;
  }
}

/** Source of `registry/operators` with only these operators. `to` gives the import path of a module. */
function registryModule(names: readonly string[], sources: Sources, to: (module: string) => string): string {
  const imports = new Imports(to);
  const lists = { operators: new Set<string>(), numbers: new Set<string>(), routines: new Set<string>() };
  for (const name of names) {
    const found = exportOf(sources.operators, name)!;
    const kind = allOperators.number(name) ? "numbers" : allOperators.routine(name) ? "routines" : "operators";
    const local = imports.add(found);
    lists[kind].add(found.isList ? `...${local}.filter(called)` : local);
  }
  const list = (kind: keyof typeof lists) => `[${[...lists[kind]].join(", ")}]`;
  return [
    `import { OperatorRegistry } from ${JSON.stringify(to("ops/operator-registry"))};`,
    ...imports.lines,
    `const names = new Set(${JSON.stringify(names)});`,
    "const called = ({ name }) => names.has(name);",
    `export const operators = new OperatorRegistry(${list("operators")}, { numbers: ${list("numbers")}, routines: ${list("routines")} });`,
  ].join("\n");
}

/**
 * Source of `kernels/families/index` with only the WebAssembly and reference kernels of these operators; other families are
 * empty.
 */
export function tableModule(names: readonly string[], sources: Sources, to: (module: string) => string): string {
  const imports = new Imports(to);
  const wanted = new Set(names.flatMap((name) => allOperators.find(name)?.kernels.map((kernel) => kernel.name) ?? []));
  const lines = Object.entries(sources.families).map(([family, rows]) => {
    const locals = new Set<string>();
    for (const { name, target } of rows as readonly Kernel<never>[]) {
      if (target === "native" || !wanted.has(name)) continue;
      const found = exportOf(sources.kernels, name);
      if (!found) throw new UnsupportedError(`bundle: kernel ${name} is in no module that bundles are made of`);
      const local = imports.add(found);
      locals.add(found.isList ? `...${local}` : local);
    }
    return `export const ${family} = [${[...locals].join(", ")}];`;
  });
  return [...imports.lines, ...lines].join("\n");
}

/** The generated modules, by the path of the module that each replaces. */
export function listsOf(
  names: readonly string[],
  sources: Sources,
  to: (module: string) => string,
): ReadonlyMap<string, string> {
  return new Map([
    [REGISTRY, registryModule(names, sources, to)],
    [TABLE, tableModule(names, sources, to)],
  ]);
}
