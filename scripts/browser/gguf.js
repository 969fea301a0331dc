/** Tests GGUF files in the page, from disk and from URLs, against Node's results for the same files. */
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { root } from "../native/sources.js";
import { ask, loadFrom, nodeAnswer, status } from "./driver.js";

const { exportProgram, int8DynamicActivationIntxWeight, loadCheckpoint, quantize, saveGguf, sharedEmbedding } =
  await import("../../dist/index.js");

/** The demo model as a GGUF, which `checkGguf` makes. */
export const ggufFile = join(root, "build", "shakespeare.gguf");

/** The demo model as a GGUF, and what Node answers with it. */
async function ggufModel() {
  const model = await loadCheckpoint(join(root, "models", "shakespeare"));
  const weights = { bits: 4, groupSize: 32, scaleDType: "f16" };
  quantize(model, [int8DynamicActivationIntxWeight(weights), sharedEmbedding(weights)]);
  await saveGguf(model, ggufFile);
  await model.close();
  const program = join(root, "build", "shakespeare-gguf.pte");
  const stored = await loadCheckpoint(ggufFile);
  await exportProgram(stored, program);
  await stored.close();
  return nodeAnswer(program);
}

/** Names of files that the page keeps, with their bytes. */
const keptFiles = (page) =>
  page.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("lowbit");
    const found = {};
    for await (const [name, handle] of folder.entries()) found[name] = (await handle.getFile()).size;
    return found;
  });

/** Wherever a GGUF comes from, the answers are Node's; its program is kept in its place, and one of those from disk. */
export async function checkGguf(browser, page, { address, folder, files }) {
  const expected = await ggufModel();
  const before = Object.keys(await keptFiles(page)).length;
  await page.setInputFiles("#file", ggufFile);
  await status(page, "Ready: shakespeare.gguf");
  assert.equal(await ask(page), expected, "the answer of a GGUF from disk");
  assert.match(await page.textContent("#kernels"), /linear_a8b32_wx_\S+_wasm/);
  const kept = await keptFiles(page);
  assert.equal(Object.keys(kept).length, before + 1, "programs kept of a GGUF from disk");
  await page.setInputFiles("#file", ggufFile);
  await status(page, "Ready: shakespeare.gguf");
  assert.deepEqual(await keptFiles(page), kept, "what is kept of the same file again");
  const bytes = readFileSync(ggufFile);
  const other = { name: "other.gguf", mimeType: "application/octet-stream", buffer: bytes };
  await page.setInputFiles("#file", other);
  await status(page, "Ready: other.gguf");
  assert.equal(Object.keys(await keptFiles(page)).length, before + 1, "programs kept of two files from disk");
  for (const [name, buffer] of [
    ["cut.gguf", bytes.subarray(0, bytes.length / 2)],
    ["x-00001-of-00002.gguf", bytes],
  ]) {
    await page.setInputFiles("#file", { ...other, name, buffer });
    await status(page, `Cannot load: ${name}: `);
  }
  copyFileSync(ggufFile, join(folder, basename(ggufFile)));
  try {
    files.set("/address.gguf", { starts: [], rest: "at once", bytes });
    for (let visit = 0; visit < 2; visit++) {
      await loadFrom(page, "address.gguf", "Ready: address.gguf");
      assert.equal(await ask(page), expected, "the answer of a GGUF from an address");
    }
    assert.deepEqual(files.get("/address.gguf").starts, [0], "downloads of a GGUF that stays the same");
    assert.equal(Object.keys(await keptFiles(page)).length, before + 2, "what is kept of a GGUF from an address");
    const context = await browser.newContext();
    const session = await context.newCDPSession(await context.newPage());
    const [full] = context.pages();
    await session.send("Storage.overrideQuotaForOrigin", { origin: new URL(address).origin, quotaSize: 1 });
    await full.goto(address);
    await full.waitForFunction(() => document.getElementById("status").textContent.startsWith("Choose"));
    for (const load of [
      () => full.setInputFiles("#file", ggufFile),
      () => loadFrom(full, basename(ggufFile), "Ready: shakespeare.gguf"),
    ]) {
      await load();
      await status(full, "Ready: shakespeare.gguf");
      assert.equal(await ask(full), expected, "the answer of a GGUF without room for its program");
    }
    await context.close();
  } finally {
    rmSync(join(folder, basename(ggufFile)));
  }
}
