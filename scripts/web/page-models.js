/** The list of models that the page offers: models.json beside it, of all programs in its folder. */
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Writes the list; programs that cannot be read are told of and left out. @param {string} folder of the page */
export async function writeModels(folder) {
  // A release builds without what is compiled here.
  const { InvalidFileError, openFile, readProgram } = await import("../../dist/index.js");
  const { bytesNeeded } = await import("../../dist/runtime/program.js");
  const models = [];
  for (const address of readdirSync(folder).filter((name) => name.endsWith(".pte"))) {
    const file = await openFile(join(folder, address));
    try {
      const memoryBytes = bytesNeeded(await readProgram(file));
      const { size: bytes } = statSync(join(folder, address));
      models.push({ name: address.replace(/\.pte$/, ""), address, bytes, memoryBytes });
    } catch (error) {
      if (!(error instanceof InvalidFileError)) throw error;
      console.warn(`not offered: ${error.message}`);
    } finally {
      await file.close();
    }
  }
  writeFileSync(join(folder, "models.json"), `${JSON.stringify(models, null, 2)}\n`);
}
