/** `npm run web`: builds the page and its demo model and serves both. PORT names another port than 8080. */
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { buildWeb, pageFolder } from "./build-web.js";
import { demoProgram } from "./demo-model.js";
import { listenAt, staticServer } from "./static-server.js";

await buildWeb();
copyFileSync(await demoProgram(), join(pageFolder, "shakespeare-4bit.pte"));
try {
  console.log(await listenAt(staticServer(pageFolder), process.env.PORT || "8080"));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
