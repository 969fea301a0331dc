/** Reads docs/custom-operator.md as a reader follows it: for each of its ways the files, the commands and their output. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";

/** `compile` is the compiler's command where there is one; main.ts prints `printed` in `environment`. */
/** @typedef {{ title: string, files: Map<string, string>, compile: string | undefined, environment: Record<string, string>, printed: string }} Way */

/**
 * A way is a section that says what a command prints. Blocks are files, which their first line names, changes of files
 * and commands; a way begins with the files of the one before.
 * @returns {Way[]}
 */
export function walkthrough() {
  const text = readFileSync(join(root, "docs", "custom-operator.md"), "utf8");
  /** @type {Way[]} */
  const ways = [];
  for (const section of text.split(/^## /m).slice(1)) {
    const [, command, printed] = /`([^`]+)` prints\n\n```text\n(.*?)^```$/ms.exec(section) ?? [];
    if (command === undefined) continue;
    const files = new Map(ways.at(-1)?.files);
    for (const [, block] of section.matchAll(/^```(?:ts|cpp)\n(.*?)^```$/gms))
      files.set(/^\/\/ ([\w.-]+): /.exec(block)[1], block);
    for (const [, block] of section.matchAll(/^```diff\n(.*?)^```$/gms)) change(files, block);
    const [, compile] = /^```sh\n(.*?)^```$/ms.exec(section) ?? [];
    const [, name, value] = /^(?:(\w+)=(\w+) )?node main\.ts$/.exec(command);
    const environment = name ? { [name]: value } : {};
    ways.push({ title: section.slice(0, section.indexOf("\n")), files, compile, environment, printed });
  }
  return ways;
}

/** Applies parts of a diff; `@@` begins each, and names the file where it is another. @param {Map<string, string>} files @param {string} diff */
function change(files, diff) {
  let file = "";
  for (const part of diff.split(/^@@/m).slice(1)) {
    const [name, ...lines] = part.split("\n").slice(0, -1);
    file = name.trim() || file;
    const side = (/** @type {string} */ sign) =>
      lines
        .filter((line) => line[0] === " " || line[0] === sign)
        .map((line) => `${line.slice(1)}\n`)
        .join("");
    const [before, after, ...others] = files.get(file).split(side("-"));
    if (after === undefined || others.length > 0) throw new Error(`${file}: expected once:\n${side("-")}`);
    files.set(file, before + side("+") + after);
  }
}
