/** The package as a bundler of applications puts it into one file, away from the package's own files. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BuildOptions, build, type Format, type Plugin, transform } from "esbuild";
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

/** As coverage does: every function counts its calls with what its module has. */
const counted: Plugin = {
  name: "counted",
  setup: ({ onLoad }) =>
    onLoad({ filter: /src\/.*\.ts$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "ts" });
      const counts = code.replaceAll(/^((?:async )?function .*\) \{|.*\) => \{)$/gm, "$1 countCall();");
      return { contents: `${counts}\nfunction countCall() {}`, loader: "js" };
    }),
};

it.each<[string, BuildOptions]>([
  ["functions that keep their names, in CommonJS, as tsx has them", { format: "cjs", keepNames: true }],
  ["what a minifier leaves, with names", { format: "esm", minify: true, keepNames: true }],
  ["functions that count their calls", { format: "esm", plugins: [counted] }],
])("starts threads of WebAssembly with %s", async (name, options) => {
  const place = join(folder, name.replaceAll(/\W/g, "-"));
  const checkpoint = join(place, "tiny");
  await mkdir(place);
  await writeTinyCheckpoint(checkpoint);
  const entry = join(place, "entry.ts");
  await writeFile(
    entry,
    `import { loadCheckpoint, loadCompiled } from ${JSON.stringify(index)};
    async function main() {
      const llm = await loadCompiled(await loadCheckpoint(${JSON.stringify(checkpoint)}), { threads: 2 });
      const options = { maxTokens: 4, temperature: 0, ignoreEos: true };
      for await (const text of llm.generate([1, 5, 9], options)) if (text.length > 99) throw text;
      console.log("done");
      await llm.dispose();
    }
    main();`,
  );
  const outfile = join(place, `out.${options.format === "cjs" ? "cjs" : "mjs"}`);
  await build({ entryPoints: [entry], outfile, bundle: true, platform: "node", logLevel: "error", ...options });
  const env = { ...process.env, LOWBIT_BACKEND: "wasm" };
  const { stdout, stderr } = spawnSync(process.execPath, [outfile], { cwd: place, env, encoding: "utf8" });
  expect(stderr).toBe("");
  expect(stdout).toMatch(/done\n$/);
});
