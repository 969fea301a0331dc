import { expect, it } from "vitest";
import { keepSections } from "../bench/kept-sections.js";

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
