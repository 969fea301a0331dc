import { expect, it } from "vitest";
import { keepSections, tableRows } from "../bench/kept-sections.js";

const machine = "- CPU: one, 2 cores";
const report = (/** @type {string[]} */ ...sections) => ["# Speed", machine, ...sections].join("\n\n").concat("\n");

it("keeps what a run did not measure, in its place", () => {
  const before = report("What is measured.", "## Prompts\n\n| 1 |\n\n### Short ones\n\nold", "## Memory\n\nold");
  const sections = keepSections(before, machine, ["What is measured now.", "## Load\n\nnew", "## Prompts\n\nnew"]);
  expect(sections).toEqual(["What is measured now.", "## Prompts\n\nnew", "## Memory\n\nold", "## Load\n\nnew"]);
});

it("keeps nothing of another machine, or of no report", () => {
  expect(keepSections(report("## Memory\n\nold"), "- CPU: one, 20 cores", ["## Load\n\nnew"])).toEqual([
    "## Load\n\nnew",
  ]);
  expect(keepSections("", machine, ["## Load\n\nnew"])).toEqual(["## Load\n\nnew"]);
});

it("reads the rows of a section's table", () => {
  const before = report(
    "## a\n\nSaid.\n\n| bits | name |\n| - | - |\n| 4   | x |\n| 3.5 |   |",
    "## b\n\n| h |\n| - |\n| 1 |",
  );
  expect(tableRows(before, machine, "## a")).toEqual([
    ["4", "x"],
    ["3.5", ""],
  ]);
  expect(tableRows(before, machine, "## c")).toEqual([]);
  expect(tableRows(before, "- CPU: another", "## a")).toEqual([]);
});
