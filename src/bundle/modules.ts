/** The modules of this package: their files, imports and exports. */
import { readdir } from "node:fs/promises";
import { dirname, extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { BuildOptions, BuildResult } from "esbuild";

export type Build = (options: BuildOptions) => Promise<BuildResult<{ metafile: true; write: false }>>;

/** Exports by name: operators or kernels, or lists of them, and anything else. */
export type Part = Readonly<Record<string, unknown>>;

/** Modules with their exports, by path without extension ("runtime/session"). */
export type Parts = ReadonlyMap<string, Part>;

/** The folder of this package's modules, and their extension: sources in its own tests, else compiled modules. */
export const modulesFolder = dirname(dirname(fileURLToPath(import.meta.url)));
const ending = extname(fileURLToPath(import.meta.url));

export const fileOf = (module: string) => join(modulesFolder, `${module}${ending}`);
export const pathOf = (file: string) => relative(modulesFolder, file).split(sep).join("/").slice(0, -ending.length);

/** The exports of the modules that a module imports. */
export async function importedParts(build: Build, module: string): Promise<Parts> {
  const file = fileOf(module);
  const { metafile } = await build({
    entryPoints: [file],
    bundle: true,
    format: "esm",
    logLevel: "silent",
    write: false,
    metafile: true,
    absWorkingDir: modulesFolder,
    // Only this module is parsed; type-only imports are dropped.
    plugins: [
      {
        name: "imports",
        setup: ({ onResolve }) =>
          onResolve({ filter: /./ }, ({ kind, path }) =>
            kind === "entry-point" ? undefined : { path, external: true },
          ),
      },
    ],
  });
  const imports = Object.values(metafile.inputs).flatMap((input) => input.imports);
  const files = imports.map(({ path }) => resolve(dirname(file), path)).filter((path) => path.endsWith(ending));
  const parts = files.map(async (path): Promise<[string, Part]> => [pathOf(path), await partOf(pathOf(path))]);
  return new Map(await Promise.all(parts));
}

/** What a module exports. */
export function partOf(module: string): Promise<Part> {
  return import(pathToFileURL(fileOf(module)).href);
}

/** Folder of stand-ins, which replace modules of the same path in bundles that do not need these. */
const STAND_INS = "bundle/stand-ins";

/** Paths of the modules that have a stand-in. */
export async function modulesWithStandIn(): Promise<readonly string[]> {
  const folder = join(modulesFolder, STAND_INS);
  const names = await readdir(folder, { recursive: true });
  const files = names.filter((name) => name.endsWith(ending) && !name.endsWith(`.d${ending}`));
  return files.map((name) => pathOf(join(folder, name)).slice(STAND_INS.length + 1)).sort();
}

export const standIn = (module: string) => `${STAND_INS}/${module}`;
