/** Build tools of the site: packages of docs/package.json, installed if they are missing. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "../native/sources.js";

export const docsFolder = join(root, "docs");

/** The file that a package is imported from. @param {string} name */
export function toolFile(name) {
  if (!existsSync(join(docsFolder, "node_modules")))
    execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts"], { cwd: docsFolder, stdio: "inherit" });
  return createRequire(join(docsFolder, "package.json")).resolve(name);
}

/** A package. @param {string} name */
export const tool = (name) => import(pathToFileURL(toolFile(name)).href);
