/** Tests unusual conditions of the page: no storage, a full one, keys of input methods, answers that fail. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pageFolder } from "../web/build.js";
import { addressOf, ask, loadFrom, openSettings, plain, serve, start, status } from "./driver.js";
import { ggufFile } from "./gguf.js";

/** A browser that blocks storage: the page loads its model and changes its colours all the same. */
export async function checkBlockedStorage(browser, address, expected) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  const page = await context.newPage();
  await page.addInitScript(() => {
    const get = () => {
      throw new DOMException("Access is denied for this document.", "SecurityError");
    };
    Object.defineProperty(globalThis, "localStorage", { get });
  });
  await start(page, address);
  await page.click("#theme");
  assert.equal(await page.getAttribute("#theme", "aria-pressed"), "true");
  assert.equal(await ask(page), expected, "the answer where storage is blocked");
  await context.close();
}

/** A question that cannot be answered is no part of the conversation, and can be changed and sent again. */
export async function checkRefused(page, expected) {
  await openSettings(page);
  await page.click("#reset");
  // Which has the focus on the question in the end.
  await status(page, "New conversation");
  await page.fill("#topK", "1.5");
  await page.fill("#input", "Hello");
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: topK");
  assert.equal(await page.locator(".message").count(), 0, "messages after one that was refused");
  assert.equal(await page.inputValue("#input"), "Hello");
  await page.fill("#topK", "");
  await page.locator("#topK").pressSequentially("4-2");
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: topK: expected a number");
  await page.fill("#topK", "");
  await page.fill("#input", "word ".repeat(2000));
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: prompt");
  assert.match(await page.textContent("#status"), /New conversation makes room/);
  await page.evaluate(() => {
    document.getElementById("input").value = "word ".repeat(2e5);
    // What is laid out of it is seen before it is taken back.
    new MutationObserver(([{ addedNodes }], observer) => {
      globalThis.shownLength = addedNodes[0]?.textContent.length;
      observer.disconnect();
    }).observe(document.getElementById("messages"), { childList: true });
  });
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: prompt: more than 512 tokens");
  assert.ok((await page.evaluate(() => globalThis.shownLength)) < 21_000, "what is shown of a megabyte");
  assert.equal((await page.inputValue("#input")).length, 999_999, "a refused message is whole");
  assert.equal(await ask(page), expected, "the answer after refused messages");
}

/** A worker that fails, as for want of memory, is told of; the message stays, and the model can be loaded again. */
export async function checkFailedWorker(page, expected) {
  await page.evaluate(() => {
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    worker.dispatchEvent(new ErrorEvent("error", { message: "out of memory" }));
  });
  await page.fill("#input", "Hello");
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: the worker failed: out of memory");
  assert.equal(await page.inputValue("#input"), "Hello");
  await loadFrom(page, "shakespeare-4bit.pte", "Ready");
  assert.equal(await ask(page), expected, "the answer of a model that was loaded again");
}

/** Keys that an input method takes: the one that ends a composition is told by its code only in Safari. */
export async function checkComposition(page) {
  await page.click("#reset");
  await page.fill("#input", "abc");
  for (const init of [{ isComposing: true }, { keyCode: 229 }])
    await page.dispatchEvent("#input", "keydown", { key: "Enter", ...init });
  assert.equal(await page.locator(".message").count(), 0, "messages sent by a composition");
}

/** Texts of scripts from right to left begin at the right, each paragraph for itself; what placeholders say can be read. */
export async function checkReadable(page) {
  await openSettings(page);
  await page.click("#reset");
  await page.fill("#maxTokens", "1");
  await page.fill("#input", "مرحبا بالعالم\nHello");
  await page.press("#input", "Enter");
  await page.waitForSelector("#send:visible");
  const [first, second] = await page.evaluate(() => {
    const text = document.querySelector(".message.user span");
    const box = text.getBoundingClientRect();
    const { paddingLeft, paddingRight } = getComputedStyle(text);
    const [left, right] = [box.left + Number.parseFloat(paddingLeft), box.right - Number.parseFloat(paddingRight)];
    const range = document.createRange();
    range.selectNodeContents(text);
    const lines = [...range.getClientRects()].filter(({ width }) => width > 0);
    return lines.map((line) => [line.left - left, right - line.right].map(Math.round));
  });
  assert.ok(first[0] > 0 && first[1] === 0, `an Arabic line stands ${first} pixels from left and right`);
  assert.equal(second[0], 0, "pixels from the left of an English line");
  for (const _ of ["one theme", "the other"]) {
    await page.click("#theme");
    const ratios = await page.evaluate(() => {
      const luminance = (color) => {
        const [r, g, b] = color
          .match(/[\d.]+/g)
          .map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      return [...document.querySelectorAll("[placeholder]")].map((field) => {
        const back = luminance(getComputedStyle(field).backgroundColor);
        const text = luminance(getComputedStyle(field, "::placeholder").color);
        return (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05);
      });
    });
    assert.ok(Math.min(...ratios) >= 4.5, `contrasts of placeholders: ${ratios}`);
  }
  await page.click("#reset");
}

/** Thousands of pieces are written in few steps, since each lays the answer out anew. */
export async function checkManyPieces(page) {
  await page.evaluate(() => {
    globalThis.writes = 0;
    const count = () => globalThis.writes++;
    new MutationObserver(count).observe(document.getElementById("messages"), { childList: true, subtree: true });
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    const { postMessage } = worker;
    worker.postMessage = ({ id }) => {
      worker.postMessage = postMessage;
      for (let i = 0; i < 5000; i++)
        worker.onmessage({ data: { id, kind: "event", event: { type: "text", text: `${i} ` } } });
      worker.onmessage({ data: { id, kind: "error", error: { name: "Error", message: "enough", file: null } } });
    };
  });
  await page.fill("#input", "Count.");
  await page.press("#input", "Enter");
  await status(page, "Cannot answer: Error: enough");
  const [text, steps] = await page.evaluate(() => {
    return [document.querySelector(".message.model:last-child .text").textContent, globalThis.writes];
  });
  assert.equal(plain(text), Array.from({ length: 5000 }, (_, i) => i).join(" "));
  assert.ok(steps < 100, `${steps} steps for 5000 pieces`);
  await page.click("#reset");
}

/** The focus is left where the reader went during a load or an answer; a load that fails leaves it where it began. */
async function checkFocusElsewhere(page, focused) {
  if (!(await page.isVisible("#start"))) await page.click("#model");
  await page.fill("#url", "typed.pte");
  await page.press("#url", "Enter");
  await page.press("#url", "End");
  await page.keyboard.type("x");
  await status(page, "Ready");
  assert.equal(await focused(), "url", "the focus after a load, in an address that is written");
  for (const place of ["#kernels-title", "#theme", "#system"]) {
    await page.fill("#input", "Tell me everything.");
    await page.press("#input", "Enter");
    await page.focus(place);
    await page.waitForSelector("#send:visible");
    await status(page, "Ready");
    assert.equal(`#${await focused()}`, place, "the focus after an answer");
  }
  await page.click("#model");
  await page.fill("#url", "missing.pte");
  await page.focus("#fetch");
  await page.keyboard.press("Enter");
  await status(page, "Cannot load");
  assert.equal(await focused(), "fetch", "the focus after a load that failed");
  await loadFrom(page, "shakespeare-4bit.pte", "Ready");
  assert.equal(await focused(), "input", "the focus after a load");
}

/** The focus stays where the reader is, and is not lost with a button that is hidden; narrow screens scroll one way only. */
export async function checkFocus(page) {
  const focused = () => page.evaluate(() => document.activeElement.id);
  await openSettings(page);
  await page.fill("#maxTokens", "300");
  await page.fill("#input", "Tell me everything.");
  await page.focus("#send");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "input", "the focus after Send");
  await page.focus("#seed");
  await page.waitForSelector("#send:visible");
  await status(page, "Ready");
  assert.equal(await focused(), "seed", "the focus after an answer, in the settings");
  await checkFocusElsewhere(page, focused);
  const size = page.viewportSize();
  await page.setViewportSize({ width: 320, height: 568 });
  for (const address of ["shakespeare-4bit.pte", `${"a".repeat(300)}.pte`]) {
    await loadFrom(page, address, address.startsWith("a") ? "Cannot load" : "Ready");
    assert.equal(
      await page.evaluate(() => document.documentElement.scrollWidth),
      320,
      "width of the page on 320 pixels",
    );
  }
  await loadFrom(page, "shakespeare-4bit.pte", "Ready");
  await page.setViewportSize(size);
}

/** A kept model is loaded, and then the page too, although their server does not answer any more, or fails. */
export async function checkSilentServer(browser, program) {
  const files = new Map([["/kept.pte", { starts: [], rest: "at once" }]]);
  const server = await serve(program, files);
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await start(page, addressOf(server));
    await loadFrom(page, "kept.pte", "Ready: kept.pte");
    await page.evaluate(() => navigator.serviceWorker.ready);
    files.get("/kept.pte").isSilent = true;
    await loadFrom(page, "kept.pte", "Ready: kept.pte");
    // All that the page is made of; a browser asks for its service worker beside that.
    const names = readdirSync(pageFolder).filter((name) => name !== "service-worker.js");
    const paths = names.map((name) => `/${name.replace("index.html", "")}`);
    for (const path of paths) files.set(path, { isSilent: true });
    await page.reload();
    await status(page, "Ready");
    for (const path of paths) files.set(path, { failure: 503 });
    await page.reload();
    await status(page, "Ready");
    // What makes a program of a GGUF is kept, too, before there was one.
    await page.setInputFiles("#file", ggufFile);
    await status(page, `Ready: ${basename(ggufFile)}`);
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}

/** A new version of a file is used although the storage has no room to keep it. */
export async function checkFullStorage(browser, program) {
  const files = new Map();
  const server = await serve(program, files);
  const address = addressOf(server);
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await start(page, address);
    await page.evaluate(() => navigator.serviceWorker.ready);
    const { usage } = await page.evaluate(() => navigator.storage.estimate());
    const session = await context.newCDPSession(page);
    await session.send("Storage.overrideQuotaForOrigin", { origin: new URL(address).origin, quotaSize: usage + 1000 });
    const script = readFileSync(join(pageFolder, "main.js"), "utf8");
    const bytes = Buffer.from(`${script};globalThis.isNew=true;/*${" ".repeat(4e5)}*/`);
    files.set("/main.js", { bytes, starts: [], rest: "at once", type: "text/javascript" });
    await page.reload();
    await status(page, "Ready");
    assert.ok(await page.evaluate(() => globalThis.isNew), "the new version of a file that there is no room for");
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}
