/** The list of models that the page offers: models.json beside it, of all programs in its folder. */
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openFile, readProgram } from "../dist/index.js";
import { bytesNeeded } from "../dist/runtime/program.js";

/** Writes the list. @param {string} folder of the page */
export async function writeModels(folder) {
  const models = [];
  for (const address of readdirSync(folder).filter((name) => name.endsWith(".pte"))) {
    const file = await openFile(join(folder, address));
    const memoryBytes = bytesNeeded(await readProgram(file));
    await file.close();
    const { size: bytes } = statSync(join(folder, address));
    models.push({ name: address.replace(/\.pte$/, ""), address, bytes, memoryBytes });
  }
  writeFileSync(join(folder, "models.json"), `${JSON.stringify(models, null, 2)}\n`);
}
