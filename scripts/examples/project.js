/** Copies of the examples, with the package installed as users get it. */
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { binaries, mainManifest, platformManifest, platforms } from "../release/release-packages.js";

/**
 * `folder` is temporary, `packages` are tarballs of the package and, where it was built, this platform's addon, `program` is the
 * demo model.
 * @typedef {{ folder: string, packages: string[], program: string }} Context
 */

/** A tarball of files of this checkout. @param {string} folder @param {object} manifest @param {[from: string, to: string][]} files */
function pack(folder, manifest, files) {
  const stage = join(folder, manifest.name.replace("/", "-"));
  mkdirSync(stage, { recursive: true });
  for (const [from, to] of files) cpSync(join(root, from), join(stage, to), { recursive: true });
  writeFileSync(join(stage, "package.json"), JSON.stringify(manifest));
  const options = { cwd: stage, encoding: /** @type {const} */ ("utf8") };
  const report = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], options);
  return join(folder, JSON.parse(report)[0].filename);
}

/** Packs what is in dist/ and build/. @param {string} folder @returns {string[]} */
export function packPackage(folder) {
  if (!existsSync(join(root, "dist", "web", "worker-bundle.js")))
    throw new Error("dist/ is not built: run npm install");
  // Addons of other platforms are not published yet: npm would look for them.
  const { optionalDependencies, ...manifest } = mainManifest();
  const main = pack(
    folder,
    manifest,
    ["dist", "native/kernel.h", "LICENSE"].map((path) => [path, path]),
  );
  const addon = join("build", "lowbit.node");
  const platform = platforms.find(
    ({ os, cpu, libc }) => os === process.platform && cpu === process.arch && libc !== "musl",
  );
  if (!platform || !existsSync(join(root, addon))) return [main];
  const files = binaries.map((name) => [join("build", name), name]);
  return [main, pack(folder, platformManifest(platform), files)];
}

/**
 * A copy of an example with all that it needs installed; `omit` are packages of its own that are not.
 * @param {string} name @param {Context} context @param {{ files?: string, omit?: string[] }} [options] where the program is to lie
 */
export function installExample(name, { folder, packages, program }, { files = "model.pte", omit = [] } = {}) {
  const project = join(folder, name);
  cpSync(join(root, "examples", name), project, { recursive: true });
  const file = join(project, "package.json");
  const manifest = JSON.parse(readFileSync(file, "utf8"));
  for (const dependency of omit) delete manifest.devDependencies?.[dependency];
  writeFileSync(file, JSON.stringify(manifest));
  const flags = ["--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  execFileSync("npm", ["install", ...flags, ...packages], { cwd: project, stdio: ["ignore", "ignore", "inherit"] });
  mkdirSync(join(project, files, ".."), { recursive: true });
  copyFileSync(program, join(project, files));
  return project;
}

/**
 * Runs a command to its end; what it wrote to stdout.
 * @param {string} command @param {string[]} args @param {{ cwd: string, input?: string }} options
 * @returns {Promise<string>}
 */
export function run(command, args, { cwd, input = "" }) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, CI: "1" } });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"])
      child[name].setEncoding("utf8").on("data", (text) => {
        output[name] += text;
      });
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve(output.stdout);
      else reject(new Error(`${command} ${args.join(" ")} ended with ${code}\n${output.stdout}${output.stderr}`));
    });
    child.stdin.end(input);
  });
}
