/**
 * Reports that are measured in parts: a run keeps parts that it leaves out, if an earlier run was on the same kind of machine.
 */

const isSection = (/** @type {string} */ text) => text.startsWith("## ");
const titleOf = (/** @type {string} */ section) => section.split("\n", 1)[0];

/** Sections of a report; none if it is of another machine. */
function sectionsOf(/** @type {string} */ before, /** @type {string} */ machine) {
  return before.split("\n").includes(machine) ? before.split(/\n+(?=## )/).filter(isSection) : [];
}

/**
 * Rows of the table of a report's section, each a list of cells; none if the report is of another machine or has no such section.
 * @param {string} before @param {string} machine @param {string} title The section's first line, with its "## ".
 */
export function tableRows(before, machine, title) {
  const section = sectionsOf(before, machine).find((section) => titleOf(section) === title) ?? "";
  const lines = section.split("\n").filter((line) => line.startsWith("|"));
  const cells = (/** @type {string} */ line) => line.split("|").map((cell) => cell.trim());
  return lines.slice(2).map((line) => cells(line).slice(1, -1));
}

/**
 * Sections of a report: the new ones, each in the place of the old one of its title, and old ones without a successor.
 * @param {string} before The report as it was, "" for none.
 * @param {string} machine The line of a report that says what machine it is of.
 * @param {readonly string[]} sections New ones; those that do not begin with "## " come first, whatever was before.
 */
export function keepSections(before, machine, sections) {
  const byTitle = [...sectionsOf(before, machine), ...sections.filter(isSection)].map((section) => [
    titleOf(section),
    section.trimEnd(),
  ]);
  return [...sections.filter((section) => !isSection(section)), ...new Map(byTitle).values()];
}
