/**
 * `npm run test:executorch [-- --short]`: checks lowbit against releases of ExecuTorch, in Python environments that are
 * installed when they are missing (scripts/executorch/environment.js). Its verifier accepts our programs and sees what
 * `lowbit inspect` prints; its runtime gives our logits, tokens and text, with our operator library where it lacks operators;
 * what its exporter writes runs here. The figures go to docs/executorch.md.
 *
 * `--short` compares two programs, and two of its exporter, with the newest release, and looks whether docs/executorch.md
 * says so.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../native/sources.js";
import { buildExecutorch } from "./build.js";
import { comparePrograms, runHere } from "./compare.js";
import { documentProblems, figure, writeDocument } from "./document.js";
import { pythonWith, releases, versions } from "./environment.js";
import { compareExports, compareOthers } from "./exports.js";
import { programNames, writePrograms } from "./programs.js";
import { compareRoundings } from "./roundings.js";
import { verifyPrograms } from "./verify.js";

const ERROR_MAX = 1e-3;
/** For tokens before any activation was rounded to another integer. */
const SAME_INTEGERS_ERROR_MAX = 1e-5;

const { short } = parseArgs({ options: { short: { type: "boolean", default: false } } }).values;
const folder = join(root, "build", "executorch");
mkdirSync(folder, { recursive: true });

const problems = [];
let passed = 0;
/** @param {boolean} fine @param {string} what */
function check(fine, what) {
  if (fine) passed++;
  else problems.push(what);
  console.log(`${fine ? "passed" : "FAILED"}: ${what}`);
}

/** One release against programs that gave `ours` here. */
async function compareRelease(release, programs, ours) {
  const python = pythonWith(release);
  const library = await buildExecutorch(python, join(folder, release));
  const files = programs.map(({ file }) => file);
  const disagreements = await verifyPrograms(python, files);
  const where = `ExecuTorch ${release}`;
  check(
    disagreements.length === 0,
    [`${where}: its verifier sees what lowbit inspect prints`, ...disagreements].join("\n"),
  );
  const results = comparePrograms(python, library, programs, ours);
  for (const { name, scheme, error, sameTokens, sameText } of results) {
    const which = `${where}: ${name}, ${scheme}`;
    check(error < ERROR_MAX, `${which}: relative L2 of logits ${figure(error)} under ${ERROR_MAX}`);
    check(sameTokens, `${which}: 60 greedy tokens`);
    check(sameText, `${which}: text of TextLLMRunner`);
  }
  const { errors, refusal } = await compareExports(python, join(folder, release, "exports"), short);
  for (const [name, error] of Object.entries(errors))
    check(error < ERROR_MAX, `${where}: program ${name} of export_llm: relative L2 of logits ${figure(error)}`);
  check(
    refusal === null,
    `${where}: a program with delegates is refused by name${refusal === null ? "" : `: ${refusal}`}`,
  );
  return { python, library, results, errors, versions: versions(python, ["executorch", "torch", "torchao"]) };
}

/** Which activations are rounded to other integers by the newest release. */
async function roundingsOf({ python, library, results }) {
  const roundings = await compareRoundings(python, library, results, folder);
  for (const { name, scheme, pair, errorBefore } of roundings)
    check(
      (errorBefore ?? 0) < SAME_INTEGERS_ERROR_MAX,
      `${name}, ${scheme}: ${pair}: logits of equal integers differ by ${figure(errorBefore ?? 0)}`,
    );
  return roundings;
}

const programs = await writePrograms(folder, short);
const ours = [];
for (const program of programs) ours.push(await runHere(program));
const compared = {};
for (const release of short ? Object.keys(releases).slice(0, 1) : Object.keys(releases))
  compared[release] = await compareRelease(release, programs, ours);
const [newest] = Object.values(compared);
if (short) {
  const wrong = documentProblems(newest.versions, newest.results, programNames(false));
  check(wrong.length === 0, ["docs/executorch.md says what was found", ...wrong].join("\n"));
} else {
  const each = (/** @type {string} */ part) =>
    Object.fromEntries(Object.entries(compared).map(([release, found]) => [release, found[part]]));
  const roundings = await roundingsOf(newest);
  const others = await compareOthers(join(folder, "others"));
  for (const [name, { by, error }] of Object.entries(others))
    check(error < ERROR_MAX, `program ${name} of ${by}: relative L2 of results ${figure(error)}`);
  const found = {
    versions: Object.values(each("versions")),
    results: each("results"),
    roundings,
    exports: each("errors"),
    others,
  };
  await writeDocument(found);
  console.log("figures written to docs/executorch.md");
}
if (problems.length > 0) console.log(problems.join("\n"));
console.log(`${passed} passed, ${problems.length} failed`);
process.exit(problems.length > 0 ? 1 : 0);
