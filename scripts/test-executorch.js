/**
 * Checks lowbit against ExecuTorch itself, in a Python environment of its own under build/executorch (Python 3.11, PyPI),
 * or that of the Python that EXECUTORCH_PYTHON names:
 * its verifier accepts our programs and sees what `lowbit inspect` prints; with our operator library its runtime gives
 * our logits, tokens and text; what its exporter writes runs here. The figures go to docs/executorch.md.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { writeFileWhole } from "../dist/node-file.js";
import { buildExecutorch } from "./build-executorch.js";
import { comparePrograms } from "./executorch/compare.js";
import { pythonWithExecutorch, versions } from "./executorch/environment.js";
import { compareExports } from "./executorch/exports.js";
import { writePrograms } from "./executorch/programs.js";
import { compareRoundings } from "./executorch/roundings.js";
import { verifyPrograms } from "./executorch/verify.js";
import { root } from "./native-sources.js";

const folder = join(root, "build", "executorch");
const document = join(root, "docs", "executorch.md");
const ERROR_MAX = 1e-3;
/** For tokens before any activation was rounded to another integer. */
const SAME_INTEGERS_ERROR_MAX = 1e-5;

const problems = [];
let passed = 0;
/** @param {boolean} fine @param {string} what */
function check(fine, what) {
  if (fine) passed++;
  else problems.push(what);
  console.log(`${fine ? "passed" : "FAILED"}: ${what}`);
}

const figure = (value) => (value === 0 ? "0" : value.toExponential(1));

function comparisonTable(results) {
  const rows = results.map(
    ({ name, scheme, target, error, sameTokens, sameText }) =>
      `| ${name} | ${scheme} | ${target} | ${figure(error)} | ${sameTokens ? "same" : "differ"} | ` +
      `${sameText ? "same" : "differs"} |`,
  );
  return [
    "| model | weights | `--target` | logits, relative L2 | 60 greedy tokens | text of TextLLMRunner |",
    "| --- | --- | --- | ---: | --- | --- |",
    ...rows,
  ].join("\n");
}

function roundingTable(found) {
  const rows = found.map(({ name, scheme, pair, tokens, integers, first, errorBefore, flips, errors }) => {
    const begins = first < 0 ? `none of ${tokens}` : `${first + 1} of ${tokens}`;
    const before = errorBefore === null ? "" : figure(errorBefore);
    const logits = errors.map(figure).join(" / ");
    return `| ${name}, ${scheme} | ${pair} | ${begins} | ${before} | ${flips.join(" / ")} of ${integers} | ${logits} |`;
  });
  return [
    "| program | compared | first token with another integer | logits before it | other integers a token | logits of a token |",
    "| --- | --- | --- | ---: | ---: | ---: |",
    ...rows,
  ].join("\n");
}

function exportTable(errors) {
  const rows = Object.entries(errors).map(([name, error]) => `| ${name} | ${figure(error)} |`);
  return ["| program of `export_llm` | logits, relative L2 |", "| --- | ---: |", ...rows].join("\n");
}

/** The document with what stands between its marks replaced. @param {Record<string, string>} parts */
function filled(parts) {
  let text = readFileSync(document, "utf8");
  for (const [name, content] of Object.entries(parts)) {
    const [start, end] = [`<!-- ${name}: by npm run test:executorch -->`, `<!-- end of ${name} -->`];
    const [before, rest] = text.split(start);
    const after = rest?.split(end)[1];
    if (after === undefined) throw new Error(`${document}: expected "${start}" and "${end}"`);
    text = `${before}${start}\n\n${content}\n\n${end}${after}`;
  }
  return text;
}

mkdirSync(folder, { recursive: true });
const python = process.env.EXECUTORCH_PYTHON ?? pythonWithExecutorch(join(folder, "venv"));
const library = buildExecutorch(python);
const programs = await writePrograms(folder);
const disagreements = await verifyPrograms(
  python,
  programs.map(({ file }) => file),
);
check(
  disagreements.length === 0,
  ["ExecuTorch's verifier sees what lowbit inspect prints", ...disagreements].join("\n"),
);
const results = await comparePrograms(python, library, programs);
for (const { name, scheme, target, error, sameTokens, sameText } of results) {
  const where = `${name}, ${scheme}, --target ${target}`;
  check(error < ERROR_MAX, `${where}: relative L2 of logits ${figure(error)} under ${ERROR_MAX}`);
  check(sameTokens, `${where}: 60 greedy tokens`);
  check(sameText, `${where}: text of TextLLMRunner`);
}
const roundings = await compareRoundings(python, library, results, folder);
for (const { name, scheme, pair, errorBefore } of roundings)
  check(
    (errorBefore ?? 0) < SAME_INTEGERS_ERROR_MAX,
    `${name}, ${scheme}: ${pair}: logits of equal integers differ by ${figure(errorBefore ?? 0)}`,
  );
const { errors, refusal } = await compareExports(python, join(folder, "exports"));
for (const [name, error] of Object.entries(errors))
  check(error < ERROR_MAX, `program ${name} of export_llm: relative L2 of logits ${figure(error)}`);
check(refusal === null, `a program with delegates is refused by name${refusal === null ? "" : `: ${refusal}`}`);

const found = versions(python, ["executorch", "torch", "torchao"]);
const line = Object.entries(found).map(([name, version]) => `${name} ${version}`);
const parts = {
  versions: `Versions: ${line.join(", ")}, x86-64.`,
  comparison: comparisonTable(results),
  roundings: roundingTable(roundings),
  exports: exportTable(errors),
};
await writeFileWhole(document, async (sink) => sink.write(new TextEncoder().encode(filled(parts))));
console.log(problems.length > 0 ? problems.join("\n") : "figures written to docs/executorch.md");
console.log(`${passed} passed, ${problems.length} failed`);
process.exit(problems.length > 0 ? 1 : 0);
