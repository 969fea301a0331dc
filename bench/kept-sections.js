/**
 * Reports that are measured in parts: a run keeps parts that it leaves out, if an earlier run was on the same kind of machine.
 */

const isSection = (/** @type {string} */ text) => text.startsWith("## ");
const titleOf = (/** @type {string} */ section) => section.split("\n", 1)[0];

/**
 * Sections of a report: the new ones, each in the place of the old one of its title, and old ones without a successor.
 * @param {string} before The report as it was, "" for none.
 * @param {string} machine The line of a report that says what machine it is of.
 * @param {readonly string[]} sections New ones; those that do not begin with "## " come first, whatever was before.
 */
export function keepSections(before, machine, sections) {
  const isSame = before.split("\n").includes(machine);
  const old = isSame ? before.split(/\n+(?=## )/).filter(isSection) : [];
  const byTitle = [...old, ...sections.filter(isSection)].map((section) => [titleOf(section), section.trimEnd()]);
  return [...sections.filter((section) => !isSection(section)), ...new Map(byTitle).values()];
}
