/** Writes the part of this package that one program needs as modules that need nothing else: for Node and for pages. */
import { dirname, extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import type { BuildOptions, BuildResult, Plugin } from "esbuild";
import type { ByteSource } from "../byte-source.ts";
import { UnsupportedError } from "../errors.ts";
import { TORCHAO_HEADER_BYTES, TORCHAO_MAGIC, torchaoUniversal } from "../kernels/layout/torchao-linear.ts";
import { checkOutput, makeFolder, openFile, writeFileWhole } from "../node-file.ts";
import { operators as allOperators } from "../ops/registry.ts";
import type { Program } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import { isInterpreted } from "../runtime/interpreter.ts";
import { calledOperators, registryModule, tableModule } from "./selection.ts";

export interface BundledFile {
  readonly path: string;
  readonly bytes: number;
  readonly gzippedBytes: number;
  /** Modules of this package in it, as paths without their endings: "runtime/session". */
  readonly modules: readonly string[];
}

export interface Bundle {
  /** Full names of the operators in it. */
  readonly operators: readonly string[];
  /** The module for Node and pages, then the worker for pages. */
  readonly files: readonly BundledFile[];
}

/** The folder with this package's modules, and their ending: sources in its own tests, else what was compiled of them. */
const modulesFolder = dirname(dirname(fileURLToPath(import.meta.url)));
const ending = extname(fileURLToPath(import.meta.url));

const moduleFile = (module: string) => join(modulesFolder, `${module}${ending}`);
const moduleOf = (path: string) => relative(modulesFolder, path).split(sep).join("/").slice(0, -ending.length);

/** Native code is not bundled: WebAssembly serves. */
const NO_NATIVE = `
export const nativeAddon = () => null;
export const missingAddon = () => "bundles have none";
export const hasNative = () => false;
export const nativeFeatures = () => [];
`;

/** Weights were packed when the program was exported. */
const NO_PACKING = `
export class GroupPacker { constructor() { throw new RangeError("bundles pack no weights"); } }
`;

/** Bundles assemble nothing but this package's kernels. */
const UNCHECKED = `
export const checkImmediates = () => {}, checkConstant = checkImmediates, checkBytes = checkImmediates;
export const checkLanes = checkImmediates, checkNarrow = checkImmediates, checkPages = checkImmediates;
`;

/** Methods of this package's programs are made ready once for each size; the interpreter runs those of other exporters. */
const NO_INTERPRETER = `
export const isInterpreted = () => false;
export class Interpreter {}
`;

/** For programs without weights in TorchAO's layouts, which are for interchange. */
const NO_TORCHAO = `
export const TORCHAO_MAGIC = ${TORCHAO_MAGIC};
export const TORCHAO_HEADER_BYTES = ${TORCHAO_HEADER_BYTES};
const absent = "weights in TorchAO's layout, which the program of this bundle does not have";
export const torchaoUniversal = { name: ${JSON.stringify(torchaoUniversal.name)}, nr: ${torchaoUniversal.nr}, refusal: () => absent };
export function readTorchaoHeader() { throw new RangeError(absent); }
`;

/** Whether a program has weights in layouts of TorchAO. */
async function hasTorchaoWeights({ constants }: Program): Promise<boolean> {
  for (const { data } of constants) {
    const bytes = await (data.readRange ? data.readRange(0, Math.min(data.byteLength, 4)) : data.read());
    if (bytes.length >= 4 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === TORCHAO_MAGIC)
      return true;
  }
  return false;
}

/** Modules that bundles have in another form. */
async function replacements(program: Program, operators: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const interpreted = program.methods.some((method) => isInterpreted(method, allOperators));
  return new Map([
    ["ops/registry", registryModule(operators, moduleFile)],
    ["kernels/table", tableModule(operators, moduleFile)],
    ["kernels/native/addon", NO_NATIVE],
    ["kernels/native/rows", NO_NATIVE],
    ["kernels/known-cpus", "export const knownCpus = {};"],
    ["kernels/layout/panel-pack", NO_PACKING],
    ["kernels/wasm/assembler/immediates", UNCHECKED],
    // Calls are joined for native kernels only.
    ["runtime/joins", "export const joinCalls = () => null;"],
    ...(interpreted ? [] : ([["runtime/interpreter", NO_INTERPRETER]] as const)),
    ...((await hasTorchaoWeights(program)) ? [] : ([["kernels/layout/torchao-linear", NO_TORCHAO]] as const)),
  ]);
}

function selecting(replaced: ReadonlyMap<string, string>): Plugin {
  return {
    name: "lowbit",
    setup(build) {
      build.onLoad({ filter: /\.[jt]s$/ }, ({ path }) => {
        const contents = replaced.get(moduleOf(path));
        return contents === undefined ? undefined : { contents, loader: "js", resolveDir: dirname(path) };
      });
      // Nothing here is imported for what it does: modules whose exports nobody needs are left out.
      build.onResolve({ filter: /^(\.|\/)/ }, async ({ path, pluginData, ...rest }) => {
        if (pluginData === "resolved") return undefined;
        const found = await build.resolve(path, { ...rest, pluginData: "resolved" });
        return { ...found, sideEffects: rest.kind === "entry-point" };
      });
    },
  };
}

async function esbuild(): Promise<(options: BuildOptions) => Promise<BuildResult<{ metafile: true; write: false }>>> {
  try {
    return (await import("esbuild")).build as never;
  } catch (cause) {
    throw new UnsupportedError("bundle: needs the package esbuild beside lowbit; install it: npm install esbuild", {
      cause,
    });
  }
}

/** What a bundle of the program has. */
async function choose(file: ByteSource) {
  const program = await readProgram(file);
  const operators = calledOperators(program);
  return { operators, replaced: await replacements(program, operators) };
}

/**
 * Writes `lowbit.js`, an ES module with `load` and `SessionDecoder`, and `worker.js`, a module worker for pages, to
 * `folder`: the runtime with the operators and the WebAssembly and reference kernels that the program at `path` calls.
 * The program itself stays where it is. UnsupportedError for operators that a bundle cannot hold, and without esbuild.
 */
export async function bundleProgram(path: string, folder: string): Promise<Bundle> {
  const file = await openFile(path);
  const { operators, replaced } = await choose(file).finally(() => file.close());
  const build = await esbuild();
  await makeFolder(folder);
  for (const name of ["lowbit.js", "worker.js"]) await checkOutput(join(folder, name), [path]);
  const result = await build({
    entryPoints: { lowbit: moduleFile("bundle/entries/entry"), worker: moduleFile("bundle/entries/worker-entry") },
    outdir: resolve(folder),
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    logLevel: "silent",
    write: false,
    metafile: true,
    absWorkingDir: modulesFolder,
    plugins: [selecting(replaced)],
  });
  const files: BundledFile[] = [];
  for (const { path: output, contents } of result.outputFiles) {
    await writeFileWhole(output, (sink) => sink.write(contents));
    const inputs = Object.entries(result.metafile.outputs).find(([name]) =>
      output.endsWith(name.split("/").at(-1)!),
    )![1];
    const modules = Object.entries(inputs.inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
      .map(([input]) => moduleOf(join(modulesFolder, input)));
    files.push({
      path: output,
      bytes: contents.length,
      gzippedBytes: gzipSync(contents).length,
      modules: modules.sort(),
    });
  }
  return { operators, files };
}
