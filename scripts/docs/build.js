/**
 * `npm run docs [-- --serve]`: one static site in build/docs of README.md, the pages of docs/ and a reference of all that the
 * package exports, made from its docstrings. Every link of the site is checked. `--serve` shows it at http://localhost:8081.
 */
import { cpSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../native/sources.js";
import { listenAt, staticServer } from "../web/static-server.js";
import { linkProblems } from "./links.js";
import { writeReference } from "./reference.js";
import { docsFolder, tool } from "./tools.js";

const { values } = parseArgs({ options: { serve: { type: "boolean", default: false } } });
const site = join(root, "build", "docs");

await writeReference();
const { build } = await tool("vitepress");
await build(docsFolder);
cpSync(join(root, "web", "icon.svg"), join(site, "icon.svg"));
const problems = linkProblems(site);
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`the site is in ${site}`);
if (values.serve) console.log(`lowbit: ${await listenAt(staticServer(site), process.env.PORT ?? "8081")}`);
