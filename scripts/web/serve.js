/**
 * `npm run web`: builds the page and its demo model and serves both. Programs as arguments are offered beside it
 * (`npm run web -- model.pte`). PORT names another port than 8080.
 */
import { copyFileSync, existsSync, linkSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { demoProgram } from "../demo/model.js";
import { buildWeb, pageFolder } from "./build.js";
import { writeModels } from "./page-models.js";
import { listenAt, staticServer } from "./static-server.js";

/** Puts a program beside the page, without a copy where that is possible. @param {string} file */
function offer(file) {
  if (!file.endsWith(".pte") || !existsSync(file)) throw new Error(`${file}: expected a .pte file`);
  const place = join(pageFolder, basename(file));
  rmSync(place, { force: true });
  try {
    linkSync(file, place);
  } catch {
    copyFileSync(file, place);
  }
}

try {
  await buildWeb();
  copyFileSync(await demoProgram(), join(pageFolder, "shakespeare-4bit.pte"));
  for (const file of process.argv.slice(2)) offer(file);
  await writeModels(pageFolder);
  console.log(await listenAt(staticServer(pageFolder), process.env.PORT || "8080"));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
