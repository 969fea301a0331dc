/** esbuild's `build`, which also writes the licences of the packages in a bundle to a file beside it. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { build as bundle } from "esbuild";
import { root } from "../native/sources.js";

const texts = join(root, "scripts", "licences");

/** Name of the licences of a bundle of several files. */
export const NOTICES = "third-party.LICENSE.txt";

/** Packages that come without their notices: what these say. @type {Record<string, string>} */
const GIVEN = { "@mlc-ai/web-xgrammar": "web-xgrammar.txt" };

/** Builds, and writes `<outfile>.LICENSE.txt`, or those of a folder beside its files. @param {import("esbuild").BuildOptions} options */
export async function build(options) {
  const result = await bundle({ ...options, metafile: true });
  const inputs = Object.values(result.metafile.outputs).flatMap((output) =>
    Object.entries(output.inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? [path] : [])),
  );
  const file = options.outfile ? `${options.outfile}.LICENSE.txt` : join(options.outdir, NOTICES);
  const folders = inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path) ?? []);
  const notices = [...new Set(folders)].sort().map((folder) => noticeOf(resolve(options.absWorkingDir ?? ".", folder)));
  if (notices.length > 0) writeFileSync(file, notices.join(`\n${"-".repeat(80)}\n\n`));
  else rmSync(file, { force: true });
  return result;
}

/** @param {string} folder of a package */
function noticeOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const own = readdirSync(folder).filter((file) => /^(licen[cs]e|notice)/i.test(file));
  const files = own.map((file) => join(folder, file));
  if (GIVEN[name]) files.push(join(texts, GIVEN[name]));
  if (!own.some((file) => /^licen/i.test(file))) files.push(join(texts, `${license}.txt`));
  const missing = files.find((file) => !existsSync(file));
  if (missing) throw new Error(`${name}: expected its licence in ${missing}, or beside its package.json`);
  return [`${name} ${version} (${license})`, ...files.map((file) => readFileSync(file, "utf8").trimEnd()), ""].join(
    "\n\n",
  );
}
