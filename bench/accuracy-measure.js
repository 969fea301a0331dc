/** Makes files of a twin by `lowbit quantize`, and table rows of the output of `lowbit compare`. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { basename, dirname, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { digits } from "./report.js";

const cli = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));

/**
 * Quantizes a twin with options, and gives the file and the seconds that it took; with `keep`, a file that is there is taken.
 * @param {string} twin @param {readonly string[]} args
 */
export function quantizeTwin(twin, name, args, { keep = false } = {}) {
  const output = twin.replace("-twin.gguf", `-${name.replaceAll(/[ ,]+/g, "-")}.pte`);
  if (keep && existsSync(output)) return { output, seconds: 0 };
  const start = performance.now();
  execFileSync(process.execPath, [cli, "quantize", twin, ...args, "-o", output], { stdio: "inherit" });
  return { output, seconds: (performance.now() - start) / 1000 };
}

/** Heads of the columns of `divergenceRows`. */
export const divergenceHead = ["file", "MB", "text", "KL, nats", "99 %", "same top, %", "PPL ratio"];

/**
 * A row for each file and text: KL divergence of its predictions for so many tokens from the twin's. `more` are options of `lowbit compare`.
 * @param {readonly string[]} files @param {readonly string[]} texts @param {readonly string[]} more
 */
export function divergenceRows(files, twin, texts, tokens, more = []) {
  const read = ["--window", "512", "--stride", "511", "--max-tokens", tokens, ...more];
  // Charts name files as they are given: from their folder on.
  const cwd = dirname(twin);
  const args = [
    "compare",
    ...files.map((file) => relative(cwd, file)),
    "--against",
    twin,
    ...texts.flatMap((text) => ["--text", text]),
    ...read,
    "--json",
  ];
  const output = execFileSync(process.execPath, [cli, ...args], {
    ...{ cwd, encoding: "utf8" },
    stdio: ["ignore", "pipe", "inherit"],
    maxBuffer: 2 ** 28,
  });
  return JSON.parse(output).models.flatMap(({ model, bytes, texts: measured }) =>
    measured.map(({ text, divergence, topAgreement, perplexityRatio }) => [
      ...[basename(model), (bytes / 1e6).toFixed(1), basename(text).replace(".test.txt", "")],
      ...[`${digits(divergence.mean)} ± ${digits(divergence.standardError)}`, digits(divergence.percentile99)],
      ...[(100 * topAgreement).toFixed(1), perplexityRatio.toFixed(4)],
    ]),
  );
}
