/** Bundles the part of this package that one program needs: standalone modules for Node and for pages. */

import { dirname, join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "esbuild";
import { checkString } from "../arguments.ts";
import type { ByteSource } from "../byte-source.ts";
import { UnsupportedError } from "../errors.ts";
import { isInterpreted } from "../executorch/interpreter.ts";
import { hasOffGraphCaches } from "../executorch/operators/kvcache.ts";
import { TORCHAO_MAGIC } from "../kernels/layout/torchao-linear.ts";
import { checkOutput, makeFolder, openFile, writeFileWhole } from "../node-file.ts";
import type { Program } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import { operators as allOperators } from "../registry/operators.ts";
import { type Build, fileOf, modulesFolder, modulesWithStandIn, pathOf, standIn } from "./modules.ts";
import { calledOperators, listsOf, traceSources } from "./selection.ts";

/** One file of a bundle: its path, its size in bytes, raw and gzipped, and the modules that it contains. */
export interface BundledFile {
  /** Path of the file. */
  readonly path: string;
  /** Size of the file. */
  readonly bytes: number;
  /** Size of the file compressed by gzip. */
  readonly gzippedBytes: number;
  /** Modules of this package in the file, as paths without extensions, such as "runtime/session". */
  readonly modules: readonly string[];
}

/** Result of `bundleProgram`: the files, and the operators that they contain. */
export interface Bundle {
  /** Full names of the operators in the bundle. */
  readonly operators: readonly string[];
  /** The module for Node and pages, then the worker for pages. */
  readonly files: readonly BundledFile[];
}

/** Whether a program has weights in TorchAO's layouts. */
async function hasTorchaoWeights({ constants }: Program): Promise<boolean> {
  for (const { data } of constants) {
    const bytes = await (data.readRange ? data.readRange(0, Math.min(data.byteLength, 4)) : data.read());
    if (bytes.length >= 4 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === TORCHAO_MAGIC)
      return true;
  }
  return false;
}

/** The modules that this program needs, of those that bundles otherwise replace by stand-ins. */
async function needed(program: Program): Promise<ReadonlySet<string>> {
  const interpreted = program.methods.some((method) => isInterpreted(method, allOperators));
  return new Set([
    ...(interpreted ? ["executorch/interpreter"] : []),
    ...(hasOffGraphCaches(program) ? ["executorch/operators/kvcache"] : []),
    ...((await hasTorchaoWeights(program)) ? ["kernels/layout/torchao-linear"] : []),
  ]);
}

/** Contents of a bundle: operators, modules generated for it, and modules that stand-ins replace. */
interface Choice {
  readonly operators: readonly string[];
  readonly written: ReadonlyMap<string, string>;
  readonly replaced: ReadonlySet<string>;
}

async function choose(build: Build, file: ByteSource): Promise<Choice> {
  const program = await readProgram(file);
  const sources = await traceSources(build);
  const operators = calledOperators(program, sources);
  const kept = await needed(program);
  const replaced = new Set((await modulesWithStandIn()).filter((module) => !kept.has(module)));
  return { operators, written: listsOf(operators, sources, fileOf), replaced };
}

function selecting({ written, replaced }: Choice): Plugin {
  return {
    name: "lowbit",
    setup(build) {
      build.onLoad({ filter: /\.[jt]s$/ }, ({ path }) => {
        const contents = written.get(pathOf(path));
        return contents === undefined ? undefined : { contents, loader: "js", resolveDir: dirname(path) };
      });
      // No module has side effects, so those whose exports are unused are left out.
      build.onResolve({ filter: /^(\.|\/)/ }, async ({ path, pluginData, ...rest }) => {
        if (pluginData === "resolved") return undefined;
        const found = await build.resolve(path, { ...rest, pluginData: "resolved" });
        const module = pathOf(found.path);
        return {
          ...found,
          path: replaced.has(module) ? fileOf(standIn(module)) : found.path,
          sideEffects: rest.kind === "entry-point",
        };
      });
    },
  };
}

async function esbuild(): Promise<Build> {
  try {
    return (await import("esbuild")).build as never;
  } catch (cause) {
    throw new UnsupportedError("bundle: needs the package esbuild beside lowbit; install it: npm install esbuild", {
      cause,
    });
  }
}

/** esbuild's options for the modules of bundles. */
const shape = { format: "esm", target: "es2022", legalComments: "none", logLevel: "silent", write: false } as const;

/** A bundled module, minified. Only a second pass over the whole drops unused calls that are marked pure. */
async function shrunk(build: Build, contents: string): Promise<Uint8Array> {
  const options = { ...shape, stdin: { contents }, minify: true, treeShaking: true, metafile: true } as const;
  return (await build(options)).outputFiles[0]!.contents;
}

/**
 * Writes `lowbit.js`, an ES module with `load` and `createDecoder`, and `worker.js`, a module worker for pages, to
 * `folder`: the runtime with the operators and the WebAssembly and reference kernels that the program at `path` calls.
 * The program itself stays where it is. UnsupportedError for operators that a bundle cannot hold, and without esbuild.
 */
export async function bundleProgram(path: string, folder: string): Promise<Bundle> {
  checkString("path", path);
  checkString("folder", folder);
  const build = await esbuild();
  const file = await openFile(path);
  const choice = await choose(build, file).finally(() => file.close());
  await makeFolder(folder);
  for (const name of ["lowbit.js", "worker.js"]) await checkOutput(join(folder, name), [path]);
  const result = await build({
    entryPoints: { lowbit: fileOf("bundle/entries/entry"), worker: fileOf("bundle/entries/worker-entry") },
    outdir: resolve(folder),
    bundle: true,
    ...shape,
    metafile: true,
    absWorkingDir: modulesFolder,
    plugins: [selecting(choice)],
  });
  const files: BundledFile[] = [];
  for (const { path: output, text } of result.outputFiles) {
    const contents = await shrunk(build, text);
    await writeFileWhole(output, (sink) => sink.write(contents));
    const inputs = Object.entries(result.metafile.outputs).find(([name]) =>
      output.endsWith(name.split("/").at(-1)!),
    )![1];
    const modules = Object.entries(inputs.inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
      .map(([input]) => pathOf(join(modulesFolder, input)));
    files.push({
      path: output,
      bytes: contents.length,
      gzippedBytes: gzipSync(contents).length,
      modules: modules.sort(),
    });
  }
  return { operators: choice.operators, files };
}
