/** Writes and checks the tables of docs/executorch.md, which compare lowbit with ExecuTorch. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeFileWhole } from "../../dist/node-file.js";
import { root } from "../native/sources.js";

const document = join(root, "docs", "executorch.md");

export const figure = (value) => (value === 0 ? "0" : value.toExponential(1));

/** "same" where it is so in all releases, else the releases in which it is not. */
function sameIn(releases, isSame) {
  const others = releases.filter((release) => !isSame(release));
  return others.length === 0 ? "same" : `differ in ${others.join(", ")}`;
}

/** The beginning of a program's row. */
const label = ({ name, scheme }) => `| ${name} | ${scheme} |`;

/** @param {Record<string, object[]>} results of programs, by release of ExecuTorch */
function comparisonTable(results) {
  const releases = Object.keys(results);
  const rows = results[releases[0]].map((program, i) => {
    const figures = releases.map((release) => figure(results[release][i].error));
    const tokens = sameIn(releases, (release) => results[release][i].sameTokens);
    const texts = sameIn(releases, (release) => results[release][i].sameText ?? true);
    const operators = program.stock ? "its own" : "our library";
    return `${label(program)} ${operators} | ${figures.join(" | ")} | ${tokens} | ${texts} |`;
  });
  return [
    `| model | weights | operators | ${releases.map((release) => `logits, ${release}`).join(" | ")} | 60 greedy tokens | text of TextLLMRunner |`,
    `| --- | --- | --- | ${releases.map(() => "---: | ").join("")}--- | --- |`,
    ...rows,
  ].join("\n");
}

/** @param {object[]} found */
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

/** @param {Record<string, Record<string, number>>} exports relative errors of programs, by release */
function exportTable(exports) {
  const releases = Object.keys(exports);
  const rows = Object.keys(exports[releases[0]]).map(
    (name) => `| ${name} | ${releases.map((release) => figure(exports[release][name])).join(" | ")} |`,
  );
  return [
    `| program of \`export_llm\` | ${releases.map((release) => `logits, ${release}`).join(" | ")} |`,
    `| --- | ${releases.map(() => "---: |").join(" ")}`,
    ...rows,
  ].join("\n");
}

/** @param {Record<string, { by: string, error: number }>} others relative errors of programs, and who exported them */
function otherTable(others) {
  const rows = Object.entries(others).map(([name, { by, error }]) => `| ${name} | ${by} | ${figure(error)} |`);
  return ["| program | exported by | results |", "| --- | --- | ---: |", ...rows].join("\n");
}

/** @param {Record<string, string>} versions */
function nameVersions(versions) {
  const [first, ...others] = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `${first} with ${others.join(" and ")}`;
}

/** The marks around a part, and what stands between them. @param {string} text @param {string} name */
function partOf(text, name) {
  const [start, end] = [`<!-- ${name}: by npm run test:executorch -->`, `<!-- end of ${name} -->`];
  const [from, to] = [text.indexOf(start), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${document}: expected "${start}" and "${end}"`);
  return {
    before: text.slice(0, from + start.length),
    content: text.slice(from + start.length, to),
    after: text.slice(to),
  };
}

/**
 * Writes the tables.
 * @param {{ versions: Record<string, string>[], results: Record<string, object[]>, roundings: object[],
 *   exports: Record<string, Record<string, number>>, others: Record<string, { by: string, error: number }> }} found
 */
export async function writeDocument({ versions, results, roundings, exports, others }) {
  const parts = {
    versions: `Versions: ${versions.map(nameVersions).join("; ")}; x86-64.`,
    comparison: comparisonTable(results),
    roundings: roundingTable(roundings),
    exports: exportTable(exports),
    others: otherTable(others),
  };
  let text = readFileSync(document, "utf8");
  for (const [name, content] of Object.entries(parts)) {
    const { before, after } = partOf(text, name);
    text = `${before}\n\n${content}\n\n${after}`;
  }
  await writeFileWhole(document, async (sink) => sink.write(new TextEncoder().encode(text)));
}

/**
 * What the document lacks or says otherwise: it names these versions and has a row for each program, with the tokens and text that
 * were found.
 * @param {Record<string, string>} versions @param {object[]} results @param {{ name: string, scheme: string }[]} programs all
 */
export function documentProblems(versions, results, programs) {
  const text = readFileSync(document, "utf8");
  const rows = partOf(text, "comparison").content.split("\n");
  const rowOf = (/** @type {{ name: string, scheme: string }} */ program) =>
    rows.find((row) => row.startsWith(label(program)));
  const named = nameVersions(versions);
  return [
    ...(partOf(text, "versions").content.includes(named) ? [] : [`names other versions than ${named}`]),
    ...programs.filter((program) => !rowOf(program)).map((program) => `has no row ${label(program)}`),
    ...results
      .filter((program) => rowOf(program) && !rowOf(program).endsWith("| same | same |"))
      .map((program) => `says that tokens or text of ${label(program)} differ`),
  ];
}
