/** Prints tables of results and writes them to bench/results/, with the machine and the day. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import { hostCpu } from "../dist/index.js";
import { keepSections, tableRows } from "./kept-sections.js";

/** A Markdown table with columns padded alike. @param {readonly string[]} head @param {readonly (readonly string[])[]} rows */
export function table(head, rows) {
  const lines = [head, head.map(() => "-"), ...rows];
  const widths = head.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  const cell = (text, i, line) => (line === lines[1] ? "-".repeat(widths[i]) : text.padEnd(widths[i]));
  return lines.map((line) => `| ${line.map((text, i) => cell(text, i, line)).join(" | ")} |`).join("\n");
}

/** The commit that is checked out, and whether files differ from it: but for results, which parts of a run write. */
export function commit() {
  const git = (/** @type {string[]} */ ...args) => spawnSync("git", args, { encoding: "utf8" }).stdout?.trim() ?? "";
  const name = git("describe", "--always", "--abbrev=10");
  const changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)bench/results");
  return name === "" ? "unknown" : `${name}${changed === "" ? "" : "-dirty"}`;
}

const machine = () =>
  `- CPU: ${cpus()[0].model.trim()}, ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB; ${hostCpu().name}`;

/** What a reader needs to judge figures: machine, commit, day, command. @param {string} command */
function origin(command) {
  return [
    machine(),
    `- Commit ${commit()}, ${new Date().toISOString().slice(0, 10)}, Node ${process.versions.node}, ${process.platform} ${process.arch}`,
    `- Made by \`${command}\``,
  ].join("\n");
}

/** Instruction sets, widest first, that tell the kernels of machines apart. */
const WIDEST = ["amx_int8", "avx512_vnni", "avx512", "avx_vnni", "avx2", "sme2", "i8mm", "dotprod", "neon"];

/** Results of machines without AMX have files of their own. */
function fileOf(name) {
  const widest = WIDEST.find((feature) => hostCpu().features.has(feature)) ?? "baseline";
  return widest === "amx_int8" ? `${name}.md` : `${name}-${widest.replace("_", "-")}.md`;
}

/** The report as an earlier run wrote it, "" for none. */
function reportBefore(/** @type {string} */ name) {
  const file = new URL(`./results/${fileOf(name)}`, import.meta.url);
  return existsSync(file) ? readFileSync(file, "utf8") : "";
}

/** Rows that a report of this kind of machine has in a section already, for a run that measures others. */
export const rowsBefore = (/** @type {string} */ name, /** @type {string} */ title) =>
  tableRows(reportBefore(name), machine(), title);

/** Prints a report and writes it to bench/results/<name>.md, whose other sections stay where it `isPartial`. */
export function writeReport(name, { title, command, sections, isPartial = false }) {
  const folder = new URL("./results/", import.meta.url);
  mkdirSync(folder, { recursive: true });
  const file = new URL(fileOf(name), folder);
  const before = isPartial ? reportBefore(name) : "";
  const text = [`# ${title}`, origin(command), ...keepSections(before, machine(), sections)].join("\n\n");
  writeFileSync(file, `${text}\n`);
  console.log(`\n${text}\n\nwritten to ${fileURLToPath(file)}`);
}

/** @param {readonly number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Three significant digits, no exponent. @param {number} value */
export function digits(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(decimals, 6));
}
