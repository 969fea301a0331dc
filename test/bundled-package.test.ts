/** The package as a bundler of applications puts it into one file, away from the package's own files. */
import { execFileSync } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Format } from "esbuild";
import { expect, it } from "vitest";
import { temporaryFolder } from "./support/folders.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const index = fileURLToPath(new URL("../src/index.ts", import.meta.url));

it.each<[Format, string]>([
  ["esm", "mjs"],
  ["cjs", "cjs"],
])("exports and runs a model as %s", async (format, ending) => {
  const place = join(folder, format);
  const checkpoint = join(place, "tiny");
  await mkdir(place);
  await writeTinyCheckpoint(checkpoint);
  const entry = join(place, "entry.ts");
  await writeFile(
    entry,
    `import { exportProgram, hostCpu, loadCheckpoint, loadMethods } from ${JSON.stringify(index)};
    async function main() {
      await exportProgram(await loadCheckpoint(${JSON.stringify(checkpoint)}), "tiny.pte");
      const program = await loadMethods("tiny.pte");
      console.log(program.has("forward"), hostCpu().features.size > 0);
      await program.dispose();
    }
    main();`,
  );
  const outfile = join(place, `out.${ending}`);
  // Bundlers warn of import.meta in CommonJS.
  await build({ entryPoints: [entry], outfile, bundle: true, platform: "node", format, logLevel: "error" });
  expect(execFileSync(process.execPath, [outfile], { cwd: place, encoding: "utf8" })).toBe("true true\n");
});
