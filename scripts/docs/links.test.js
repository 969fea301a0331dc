/** The check of the site's links finds broken ones, and no others. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { linkProblems } from "./links.js";

const site = await temporaryFolder();

it("names pages and places that are not there", async () => {
  await mkdir(join(site, "docs"));
  const links = [
    "docs/a.html",
    "docs/a",
    "/docs/a.html#here",
    "#top",
    "https://example.org/x",
    "docs/b.html",
    "docs/a.html#no",
  ];
  const anchors = links.map((link) => `<a class="x" href="${link}">text</a>`).join("");
  await writeFile(join(site, "index.html"), `<h1 id="top">one</h1>${anchors}`);
  await writeFile(
    join(site, "docs", "a.html"),
    '<h2 id="here">two</h2><a href="../index.html#top">up</a><a href="/gone">x</a>',
  );
  expect(linkProblems(site)).toEqual([
    "docs/a.html: /gone: there is no such page",
    "index.html: docs/b.html: there is no such page",
    "index.html: docs/a.html#no: the page has no such place",
  ]);
});
