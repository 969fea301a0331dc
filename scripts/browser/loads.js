/** Tests loading: cancelled, superseded, of a file that was replaced, without free storage, and in two tabs at once. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { ask, loadFrom, start, status } from "./driver.js";

const untilBytesCome = (page) => page.waitForFunction(() => document.getElementById("amount").textContent !== "");

/** A load that is cancelled leaves a page that loads; so does one that waits for that of another tab. */
export async function checkCancel(page, second, expected) {
  await loadFrom(page, "slow.pte", "Loading slow.pte");
  await untilBytesCome(page);
  await loadFrom(second, "slow.pte", "Loading slow.pte");
  const isWaiting = () => navigator.locks.query().then(({ pending }) => pending.length === 1);
  await second.waitForFunction(isWaiting);
  for (const tab of [second, page]) {
    await tab.click("#cancel");
    await status(tab, "Loading was cancelled");
    await loadFrom(tab, "shakespeare-4bit.pte", "Ready");
  }
  assert.equal(await ask(page), expected, "the answer after a cancelled load");
}

/** Two tabs that load a file at once download it once. */
export async function checkTogether(pages, file, expected) {
  await Promise.all(pages.map((page) => loadFrom(page, "shared.pte", "Ready: shared.pte")));
  for (const page of pages) assert.equal(await ask(page), expected, "the answer of two tabs that loaded at once");
  assert.deepEqual(file.starts, [0], "requests of two tabs");
}

/** A file of equal length in the place of another, by a server without ETags; a damaged one is not kept. */
export async function checkReplaced(page, program, file) {
  await loadFrom(page, "dated.pte", "Ready: dated.pte");
  await loadFrom(page, "dated.pte", "Ready: dated.pte");
  assert.equal(file.starts.length, 1, "downloads of a file that stays the same");
  file.bytes = readFileSync(program).fill(0, 0, 4096);
  file.date = new Date(1e12).toUTCString();
  await loadFrom(page, "dated.pte", "Cannot load: http");
  file.bytes = undefined;
  await loadFrom(page, "dated.pte", "Ready: dated.pte");
  assert.equal(file.starts.length, 3, "downloads of a file that was replaced twice");
}

/** Two tabs that load a file at once which is another at each request: the second waits until the first has read its own. */
export async function checkTogetherReplaced(pages) {
  for (let i = 0; i < 3; i++) {
    await Promise.all(pages.map((page) => loadFrom(page, "changing.pte", "Loading changing.pte")));
    const isEnded = () => !document.getElementById("status").textContent.startsWith("Loading");
    await Promise.all(pages.map((page) => page.waitForFunction(isEnded)));
    for (const page of pages) assert.equal(await page.textContent("#status"), "Ready: changing.pte");
  }
}

/** A file is not fetched again because an answer without a body does not say its length. */
export async function checkBareHead(page, file) {
  for (let i = 0; i < 2; i++) await loadFrom(page, "bare.pte", "Ready: bare.pte");
  assert.deepEqual(file.starts, [0], "requests of a file that stays the same");
}

/** A file that is replaced on a server that answers GET alone is fetched again; so is what a kept file has lost. */
export async function checkKept(page, file) {
  await loadFrom(page, "kept.pte", "Ready: kept.pte");
  file.date = new Date(1e12).toUTCString();
  await loadFrom(page, "kept.pte", "Ready: kept.pte");
  // The first, one that asks for the version, and the new one.
  assert.deepEqual(file.starts, [0, 0, 0], "requests of a file that was replaced");
  await page.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("lowbit");
    const address = new TextEncoder().encode(new URL("kept.pte", location.href).href);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", address));
    const name = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const stream = await (await folder.getFileHandle(name)).createWritable({ keepExistingData: true });
    await stream.truncate(100_000);
    await stream.close();
  });
  await loadFrom(page, "kept.pte", "Ready: kept.pte");
  assert.ok(file.starts.length === 4 && file.starts[3] > 0, `starts of the requests: ${file.starts}`);
}

/** A load that begins at the moment when the one before ends leaves one worker, its own. */
export async function checkSuperseded(page) {
  await page.evaluate(() => {
    globalThis.onWorkerMessage = ({ data }) => {
      if (data.kind !== "end") return;
      globalThis.onWorkerMessage = undefined;
      globalThis.isSuperseded = true;
      document.getElementById("load").requestSubmit();
    };
  });
  if (!(await page.isVisible("#start"))) await page.click("#model");
  await page.fill("#url", "shakespeare-4bit.pte");
  await page.click("#fetch");
  await page.waitForFunction(() => globalThis.isSuperseded);
  await status(page, "Ready");
  const ended = await page.evaluate(() => globalThis.workers.map(({ isEnded }) => isEnded));
  assert.deepEqual(
    ended,
    ended.map((_, index) => index < ended.length - 1),
    "which workers were ended",
  );
}

/** If storage has no room for the program, or for anything at all, it is not kept, and the page says so. */
export async function checkQuota(browser, address, expected) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  for (const quotaSize of [1e6, 1]) {
    await session.send("Storage.overrideQuotaForOrigin", { origin: new URL(address).origin, quotaSize });
    await start(page, address);
    assert.match(await page.textContent("#status"), /could not be kept/);
    assert.equal(await ask(page), expected, `the answer without room for the program: ${quotaSize}`);
  }
  await context.close();
}
