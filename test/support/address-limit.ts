/** Programs in processes of their own, under a limit of addresses (ulimit -v). */
import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { type BuildOptions, build } from "esbuild";

/** Bundles TypeScript of a folder, which imports from there, to a script for Node. */
export async function bundleScript(
  contents: string,
  resolveDir: string,
  outfile: string,
  options: Pick<BuildOptions, "external" | "define"> = {},
): Promise<void> {
  const stdin = { contents, resolveDir, loader: "ts" } as const;
  await build({ stdin, outfile, bundle: true, platform: "node", format: "esm", ...options });
}

/** Runs a script with so many gigabytes of addresses, and flags of Node. */
export function runLimited(script: string, gigabytes: number, flags = ""): SpawnSyncReturns<string> {
  const command = `ulimit -v ${gigabytes * 2 ** 20}; exec "$0" ${flags} "$1"`;
  return spawnSync("bash", ["-c", command, process.execPath, script], { encoding: "utf8" });
}
