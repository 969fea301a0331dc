/**
 * `npm run worker-texts`: writes the functions that threads run as source strings. `toString()` of a function would give what
 * bundlers, minifiers and coverage tools made of it, which refers to names that a thread does not have. `npm run check` fails
 * for files that are not up to date.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transformSync } from "esbuild";
import { root } from "../native/sources.js";

/** Source, what is written from it, and the name of the constant. */
const programs = [
  ["src/kernels/wasm/engine/worker-program.ts", "src/kernels/wasm/engine/worker-text.ts", "WORKER_TEXT"],
  ["src/text/constraints/mask-program.ts", "src/text/constraints/mask-text.ts", "MASK_TEXT"],
];

/** A module without imports as a script that declares what it exports. @param {string} file */
function scriptOf(file) {
  const { code } = transformSync(readFileSync(join(root, file), "utf8"), {
    ...{ loader: "ts", target: "es2022", charset: "utf8", minifyWhitespace: true },
    tsconfigRaw: {},
  });
  const script = code.replaceAll(/(?<=^|[;}])export (?=const|function|async)/g, "");
  if (/\b(import|export)\b/.test(script)) throw new Error(`${file}: expected no imports, and exports of declarations`);
  return script.trim();
}

/** The files as they should be, by their names. @returns {Map<string, string>} */
export function workerTexts() {
  return new Map(
    programs.map(([source, file, name]) => {
      const script = scriptOf(source);
      const text = [
        `/** The declarations of ${source} as a text for threads. Written by \`npm run worker-texts\`. */`,
        `export const ${name}: string = ${JSON.stringify(script)};`,
        "",
      ].join("\n");
      const biome = [
        join(root, "node_modules", "@biomejs", "biome", "bin", "biome"),
        "format",
        `--stdin-file-path=${file}`,
      ];
      return [file, execFileSync(process.execPath, biome, { cwd: root, input: text, encoding: "utf8" })];
    }),
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [file, text] of workerTexts()) writeFileSync(join(root, file), text);
