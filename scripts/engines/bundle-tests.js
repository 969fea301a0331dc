/** Bundles tests as one module for engines in which vitest does not run; scripts/arm/vitest.js takes its place. */
import { join } from "node:path";
import { build } from "esbuild";
import { root } from "../native/sources.js";

/** @param {string} entry within scripts @param {string} outfile @param {import("esbuild").BuildOptions} options */
export async function bundleTests(entry, outfile, options) {
  await build({
    entryPoints: [join(root, "scripts", entry)],
    outfile,
    bundle: true,
    format: "esm",
    target: "es2022",
    logLevel: "warning",
    alias: { vitest: join(root, "scripts", "arm", "vitest.js") },
    ...options,
  });
}
