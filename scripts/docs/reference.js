/** Makes the site's reference of the package's exports, from docstrings by typedoc. */
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { docsFolder, tool, toolFile } from "./tools.js";

const folder = join(docsFolder, "reference");

/** The source of each of the package's exports, and the name by which it is imported. @returns {Map<string, string>} */
function entryPoints() {
  const { name, exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const typed = Object.entries(exports).filter(([, target]) => target.types);
  const source = (/** @type {string} */ types) =>
    types
      .replace(/^\.\/dist\/aqlm\//, "packages/aqlm/src/")
      .replace(/^\.\/dist\//, "src/")
      .replace(/\.d\.ts$/, ".ts");
  return new Map(typed.map(([path, { types }]) => [join(root, source(types)), name + path.slice(1)]));
}

/** Writes docs/reference, with the list of its pages for the site's side bar. */
export async function writeReference() {
  const { Application, Converter, ReflectionKind } = await tool("typedoc");
  const entries = entryPoints();
  const app = await Application.bootstrapWithPlugins({
    plugin: ["typedoc-plugin-markdown", "typedoc-vitepress-theme"].map(toolFile),
    ...{ entryPoints: [...entries.keys()], tsconfig: join(root, "tsconfig.json"), skipErrorChecking: true },
    ...{
      out: folder,
      docsRoot: root,
      readme: join(docsFolder, ".vitepress", "reference.md"),
      mergeReadme: true,
      entryFileName: "index",
      hidePageHeader: true,
      hideBreadcrumbs: true,
    },
    ...{ disableSources: true, excludePrivate: true, excludeInternal: true, logLevel: "Warn" },
    ...{ validation: { invalidLink: true, notExported: false, notDocumented: false } },
    ...{ parametersFormat: "table", useCodeBlocks: true },
    ...{ groupOrder: ["Functions", "Classes", "Variables", "*"] },
  });
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.getReflectionsByKind(ReflectionKind.Module)) {
      const symbol = project.getSymbolIdFromReflection(module);
      module.name = entries.get(symbol?.fileName) ?? module.name;
    }
  });
  const project = await app.convert();
  if (!project) throw new Error("typedoc cannot read the exports of package.json");
  app.validate(project);
  rmSync(folder, { recursive: true, force: true });
  await app.generateOutputs(project);
  if (app.logger.hasErrors()) throw new Error("typedoc found errors in docstrings, listed above");
}
