/** `npm run web`: builds the page and its demo model and serves both. PORT names another port than 8080. */
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { buildWeb, pageFolder } from "./build-web.js";
import { demoProgram } from "./demo-model.js";
import { staticServer } from "./static-server.js";

await buildWeb();
copyFileSync(await demoProgram(), join(pageFolder, "shakespeare-4bit.pte"));
const port = Number(process.env.PORT ?? 8080);
staticServer(pageFolder).listen(port, () => console.log(`http://localhost:${port}/`));
