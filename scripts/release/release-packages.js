/**
 * Manifests of the published packages: the main package, and one per platform with its native addon and libraries of kernels.
 * Made from package.json and one template; scripts/release/release.js builds their contents.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { libraries, libraryBeside, root } from "../native/sources.js";

/** @typedef {{ name: string, os: string, cpu: string, libc?: string, zig: string }} Platform */

/**
 * `name` is what src/kernels/native/addon.ts asks for, `os`, `cpu` and `libc` what npm compares with the machine, `zig`
 * the compiler's target with the oldest system that Node 20 runs on.
 * @type {Platform[]}
 */
export const platforms = [
  { name: "linux-x64-gnu", os: "linux", cpu: "x64", libc: "glibc", zig: "x86_64-linux-gnu.2.28" },
  { name: "linux-x64-musl", os: "linux", cpu: "x64", libc: "musl", zig: "x86_64-linux-musl" },
  { name: "linux-arm64-gnu", os: "linux", cpu: "arm64", libc: "glibc", zig: "aarch64-linux-gnu.2.28" },
  { name: "linux-arm64-musl", os: "linux", cpu: "arm64", libc: "musl", zig: "aarch64-linux-musl" },
  { name: "darwin-x64", os: "darwin", cpu: "x64", zig: "x86_64-macos.11.0" },
  { name: "darwin-arm64", os: "darwin", cpu: "arm64", zig: "aarch64-macos.11.0" },
  { name: "win32-x64", os: "win32", cpu: "x64", zig: "x86_64-windows-gnu" },
  { name: "win32-arm64", os: "win32", cpu: "arm64", zig: "aarch64-windows-gnu" },
];

const source = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const scope = `@${source.name}`;
const { version, license, repository, engines } = source;

const ADDON = "lowbit.node";

/** What a platform's package holds: the native addon, and the libraries of packages beside it. */
export const binaries = [ADDON, ...libraries.map((name) => libraryBeside(ADDON, name))];

/** @param {Platform} platform */
export function platformManifest({ name, os, cpu, libc }) {
  return {
    name: `${scope}/${name}`,
    version,
    description: `Native addon of ${source.name} for ${name}`,
    license,
    repository,
    engines,
    main: ADDON,
    files: binaries,
    os: [os],
    cpu: [cpu],
    libc: libc === undefined ? undefined : [libc],
  };
}

/** The main package as users get it: nothing to run at install, addons as optional packages of the same version. */
export function mainManifest() {
  const { scripts, devDependencies, workspaces, ...published } = source;
  const addons = platforms.map(({ name }) => [`${scope}/${name}`, version]);
  return { ...published, optionalDependencies: Object.fromEntries(addons) };
}

/** The file name that `npm pack` gives a package. @param {{ name: string, version: string }} manifest */
export function tarballName({ name, version }) {
  return `${name.replace("@", "").replace("/", "-")}-${version}.tgz`;
}
