/** A program measured in a worker of a page; bundled by wasm-browser.js. */
import { loadProgramObject } from "../dist/api/load-program-object.js";
import { readProgram } from "../dist/program/read.js";
import { blobSource } from "../dist/web/blob-source.js";
import { measure, measureFirstPrompt } from "./wasm-measure.js";

addEventListener("message", async ({ data: { url, threads, counts } }) => {
  try {
    const blob = await (await fetch(url)).blob();
    const load = async () => loadProgramObject(await readProgram(blobSource(url, blob)), url, { threads });
    postMessage(await (counts.firstPrompt ? measureFirstPrompt(load, counts.firstPrompt) : measure(load, counts)));
  } catch (error) {
    postMessage({ error: String(error.stack) });
  }
});
