/**
 * `npm run release -- --out build/release [--only linux-x64-gnu,darwin-arm64]`: builds the packages that are published,
 * as tarballs: the main one, and one per platform with its native addon, cross-compiled from here with zig (scripts/release/zig.js).
 * Publish the platform packages first. Needs Python 3, PyPI and npm; the first run builds zig's libraries for minutes.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../native/sources.js";
import { joinPackage } from "../package/join.js";
import { buildServedPage, buildWorker } from "../web/build.js";
import { binaryFaults } from "./release-checks.js";
import { binaries, mainManifest, platformManifest, platforms } from "./release-packages.js";
import { buildBinaries, installZig } from "./zig.js";

const { values } = parseArgs({
  options: { out: { type: "string", default: "build/release" }, only: { type: "string" } },
});
const out = resolve(root, values.out);
const stage = join(out, "stage");
const only = values.only?.split(",");
for (const name of only ?? [])
  if (!platforms.some((platform) => platform.name === name)) {
    console.error(`--only ${name}: expected some of ${platforms.map((platform) => platform.name).join(", ")}`);
    process.exit(2);
  }

/** @param {string} folder @param {object} manifest */
function writeManifest(folder, manifest) {
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** Writes a package's manifest and packs its folder. @param {string} folder @param {object} manifest @param {string[]} texts */
function pack(folder, manifest, texts) {
  writeManifest(folder, manifest);
  for (const name of texts) cpSync(join(root, name), join(folder, name));
  const report = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", out], {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    shell: process.platform === "win32",
  });
  const [{ filename, size, unpackedSize, entryCount }] = JSON.parse(report);
  const [packed, unpacked] = [size, unpackedSize].map((bytes) => `${(bytes / 1e6).toFixed(2)} MB`);
  console.log(`${filename}: ${packed}, unpacked ${unpacked}, ${entryCount} files`);
}

rmSync(stage, { recursive: true, force: true });
const main = join(stage, "main");
mkdirSync(main, { recursive: true });
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
/** Compiles a project to a folder. @param {string} project @param {string} outDir */
function compile(project, outDir) {
  const output = [
    "--outDir",
    join(main, outDir),
    "--tsBuildInfoFile",
    join(stage, `${project.replaceAll("/", "-")}.tsbuildinfo`),
  ];
  execFileSync(process.execPath, [compiler, "-p", join(root, project), ...output], { stdio: "inherit" });
}
// Modules of the package find each other by its name.
writeManifest(main, mainManifest());
compile("tsconfig.build.json", "dist");
compile("packages/aqlm/tsconfig.build.json", join("dist", "aqlm"));
await joinPackage(join(main, "dist"));
await buildWorker(join(main, "dist"));
await buildServedPage(join(main, "dist"));
pack(main, mainManifest(), ["LICENSE", "README.md", "native/kernel.h"]);

await installZig();
for (const platform of platforms.filter(({ name }) => only?.includes(name) ?? true)) {
  const folder = join(stage, platform.name);
  mkdirSync(folder, { recursive: true });
  const start = performance.now();
  await buildBinaries(platform, join(folder, "lowbit.node"));
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  const files = binaries.map((name) => ({ name, bytes: readFileSync(join(folder, name)) }));
  const sizes = files.map(({ name, bytes }) => `${name} ${(bytes.length / 1e6).toFixed(2)} MB`);
  console.log(`${platform.name}: ${sizes.join(", ")} in ${seconds} s`);
  for (const { name, bytes } of files) {
    const faults = binaryFaults(platform, name, bytes);
    if (faults.length > 0) throw new Error(`${name} of ${platform.name} ${faults.join("; ")}`);
  }
  pack(folder, platformManifest(platform), ["LICENSE"]);
}
