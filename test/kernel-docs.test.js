/** docs/kernels.md against the rows that it lists. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { docsFile, renderDocs } from "../scripts/docs/kernels.js";
import { cpuWith } from "../src/index.ts";
import { kernelTable, knownCpus } from "../src/tools/index.ts";

it("docs/kernels.md is up to date (npm run rows writes it)", () => {
  expect(readFileSync(docsFile, "utf8")).toBe(renderDocs({ kernelTable, cpuWith, knownCpus }));
});
