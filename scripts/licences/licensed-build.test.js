/** Bundles of others' packages come with their licences. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { build } from "./licensed-build.js";

const nodePaths = [fileURLToPath(new URL("../../node_modules", import.meta.url))];

it("writes the licences of the packages in a bundle, and none without packages", async () => {
  const folder = await temporaryFolder();
  const outfile = join(folder, "out.js");
  const options = { bundle: true, outfile, nodePaths, format: "esm", external: ["module", "url"], logLevel: "silent" };
  const entry = join(folder, "entry.js");
  writeFileSync(entry, 'import "@mlc-ai/web-xgrammar"; import { Builder } from "flatbuffers"; console.log(Builder);');
  await build({ ...options, entryPoints: [entry] });
  const notices = readFileSync(`${outfile}.LICENSE.txt`, "utf8");
  for (const text of ["@mlc-ai/web-xgrammar 0", "XGrammar Contributors", "Kazuho Oku", "flatbuffers 25"])
    expect(notices).toContain(text);
  expect(notices.split("Apache License\n").length).toBe(3);
  writeFileSync(entry, "console.log(1);");
  await build({ ...options, entryPoints: [entry] });
  expect(existsSync(`${outfile}.LICENSE.txt`)).toBe(false);
});
