/**
 * `npm run test:browser`: the page in headless Chromium (scripts/wasm/browser.js) against the text that Node's reference
 * kernels generate; `--screenshots` writes docs/page-*.png and the page's icons.
 */
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { root } from "../native/sources.js";
import { launchChromium } from "../wasm/browser.js";

const {
  addressOf,
  ask,
  loadFrom,
  nodeAnswer,
  openSettings,
  plain,
  QUESTION,
  recordWorkers,
  serve,
  start,
  status,
  TOKENS,
} = await import("./driver.js");
const {
  checkBareHead,
  checkCancel,
  checkKept,
  checkQuota,
  checkReplaced,
  checkSuperseded,
  checkTogether,
  checkTogetherReplaced,
} = await import("./loads.js");
const {
  checkBlockedStorage,
  checkComposition,
  checkFailedWorker,
  checkFocus,
  checkFullStorage,
  checkManyPieces,
  checkReadable,
  checkRefused,
  checkSilentServer,
} = await import("./page.js");
const features = await import("./features.js");
const { takeScreenshots } = await import("./screenshots.js");
const { checkMcp } = await import("./mcp.js");
const { checkGguf } = await import("./gguf.js");
const { checkTexts } = await import("./texts.js");
const { checkServedPage } = await import("./served.js");
const { buildWeb, pageFolder } = await import("../web/build.js");
const { writeModels } = await import("../web/page-models.js");
const { demoProgram } = await import("../demo/model.js");
const { bundleProgram, exportProgram, loadCheckpoint, loadProgram, openFile, readProgram, saveProgram } = await import(
  "../../dist/index.js"
);
const { aqlmWeight } = await import("../../dist/aqlm/index.js");

/** With the worker: templates and tokenizers of others, rendered and encoded as the originals do, models of texts, recurrent layers and experts. */
const PAGE_BYTES_MAX = 262e3;

/** Scripts of a visit before a model is chosen, and all that it loads until then, both compressed. */
const START_SCRIPTS_MAX = 12_000;
const START_BYTES_MAX = 50_000;

/** The memory of a method that holds its states, and more than any engine has. */
const STATE_MEMORY = 2;
const STATE_BYTES = 2 ** 36;

/** A first visit loads little: what runs a model, and what shows answers, come when there is one. */
async function checkFirstVisit(browser, address) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  const page = await context.newPage();
  await page.goto(address);
  await page.waitForSelector("#offers button");
  const names = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
  const files = ["index.html", ...names.map((name) => basename(new URL(name).pathname))];
  const bytesOf = (names) =>
    names.reduce((sum, name) => sum + gzipSync(readFileSync(join(pageFolder, name))).length, 0);
  const scripts = files.filter((name) => name.endsWith(".js"));
  const [bytes, all] = [bytesOf(scripts), bytesOf(files)];
  assert.ok(scripts.length > 0 && bytes < START_SCRIPTS_MAX, `${bytes} bytes of scripts before a model is chosen`);
  assert.ok(all < START_BYTES_MAX, `${all} bytes before a model is chosen`);
  console.log(`${bytes} bytes of JavaScript, ${all} bytes in all, before a model is chosen: ${files.join(", ")}`);
  await context.close();
}

/**
 * Stops an answer at its first words; the next one is whole again. The worker is asked something right after it is told to
 * stop: what it writes after the answer to that, it writes although it has been told.
 */
async function checkStop(page, expected) {
  await openSettings(page);
  const settings = { temperature: 3, seed: 7, maxTokens: 400 };
  for (const [name, value] of Object.entries(settings)) await page.fill(`#${name}`, `${value}`);
  await page.fill("#input", "Tell me everything.");
  // In the page, since an answer of so small a model may end before a click from outside comes.
  await page.evaluate(() => {
    const worker = globalThis.workers.find(({ isEnded }) => !isEnded);
    const { postMessage } = worker;
    const kinds = [];
    globalThis.repliesAfterStop = kinds;
    worker.postMessage = (message) => {
      postMessage.call(worker, message);
      if (message.kind !== "abort") return;
      postMessage.call(worker, { kind: "stats", id: -1 });
      worker.postMessage = postMessage;
      worker.addEventListener("message", ({ data }) => {
        if (data.id === -1) kinds.push("answer");
        else if (data.id === message.id) kinds.push(data.kind);
      });
    };
    const texts = new Set();
    globalThis.textsAfterStop = texts;
    let isStopped = false;
    const observer = new MutationObserver(() => {
      const text = document.querySelector(".message.model:last-child .text")?.textContent;
      if (text && isStopped) texts.add(text);
      if (!text || isStopped) return;
      isStopped = true;
      document.getElementById("stop").click();
    });
    observer.observe(document.getElementById("messages"), { childList: true, subtree: true });
  });
  await page.press("#input", "Enter");
  await status(page, "Stopped");
  await page.waitForFunction(() => globalThis.repliesAfterStop.includes("answer"));
  const { more, replies } = await page.evaluate(() => ({
    more: globalThis.textsAfterStop.size,
    replies: globalThis.repliesAfterStop,
  }));
  assert.ok(more <= 1, `${more} pieces came after the stop`);
  assert.ok(replies.includes("error"), "the worker ends what is stopped");
  const late = replies.slice(replies.indexOf("answer")).filter((kind) => kind === "event");
  assert.ok(late.length <= 1, `the worker wrote ${late.length} pieces after it was told to stop`);
  assert.equal(await ask(page), expected, "the answer after a stop");
}

/** Seconds that the processes of pages have computed so far. */
async function pageSeconds(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  return processInfo.filter(({ type }) => type === "renderer").reduce((sum, { cpuTime }) => sum + cpuTime, 0);
}

/** What pages may compute in two seconds: empty ones are charged up to 0.12 s here, a worker that waits by looking 2 s. */
const IDLE_SECONDS_MAX = 0.2;

/** A second after an answer nothing computes, or once the browser has collected its garbage. */
async function checkIdle(browser) {
  const looks = [];
  do {
    await pause(1000);
    const before = await pageSeconds(browser);
    await pause(2000);
    looks.push((await pageSeconds(browser)) - before);
  } while (looks.at(-1) >= IDLE_SECONDS_MAX && looks.length < 5);
  const texts = looks.map((seconds) => `${(1000 * seconds).toFixed(0)} ms`);
  assert.ok(looks.at(-1) < IDLE_SECONDS_MAX, `pages without anything to do compute ${texts.join(", ")} in 2 s each`);
  console.log(`idle pages compute ${texts.join(", ")} in 2 s`);
}

async function checkInstallable(page) {
  const session = await page.context().newCDPSession(page);
  const { installabilityErrors } = await session.send("Page.getInstallabilityErrors");
  // Pages of test contexts are never offered for installation, whatever they are like.
  const problems = installabilityErrors.filter(({ errorId }) => errorId !== "in-incognito");
  assert.deepEqual(problems, [], "what keeps the page from being installed");
}

/** What is read out: each change of state once, answers when they are whole; what scrolls can be reached by keys. */
async function checkAccessible(page, expected) {
  await page.evaluate(() => {
    const texts = [];
    const busy = [];
    globalThis.said = { texts, busy };
    const watch = (id, note, what) => {
      const target = document.getElementById(id);
      new MutationObserver(() => note(target)).observe(target, what);
    };
    watch("status", ({ textContent }) => texts.push(textContent), { childList: true });
    watch("messages", ({ ariaBusy }) => busy.push(ariaBusy), { attributeFilter: ["aria-busy"] });
  });
  await loadFrom(page, "accessible.pte", "Ready");
  assert.equal(await ask(page), expected);
  const { texts, busy } = await page.evaluate(() => globalThis.said);
  assert.deepEqual(texts, [
    ...["Loading accessible.pte", "Ready: accessible.pte", "New conversation", "Answering", "Ready"],
  ]);
  assert.deepEqual(busy, ["true", "false"], "whether the messages are busy");
  await page.focus("#messages");
  assert.equal(await page.evaluate(() => document.activeElement.id), "messages");
  assert.equal(await page.locator("main aside").count(), 0, "asides within the main part");
}

/** Without isolation there is one thread and unshared memory, and the text is the same. */
async function checkOneThread(browser, program, expected) {
  const server = await serve(program, new Map(), false);
  const context = await browser.newContext({ serviceWorkers: "block" });
  try {
    const page = await context.newPage();
    await start(page, addressOf(server));
    assert.ok(await page.evaluate(() => !globalThis.crossOriginIsolated && !globalThis.SharedArrayBuffer));
    assert.equal(await ask(page), expected, "the answer of one thread");
    assert.match(await page.textContent("#figures"), /Threads1 \(page is not isolated\)/);
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}

/** `lowbit/web` as it is in the package, without a bundler, loads a handle of a file. */
async function checkModuleScript(context, address) {
  const page = await context.newPage();
  await page.goto(`${address}unbundled.html`);
  const text = await page.evaluate(
    async ([question, maxTokens]) => {
      const loadModel = await globalThis.imported;
      const folder = await navigator.storage.getDirectory();
      const handle = await folder.getFileHandle("mine.pte", { create: true });
      const { body } = await fetch("shakespeare-4bit.pte");
      await body.pipeTo(await handle.createWritable());
      const model = await loadModel(handle);
      if (model.facts.name !== "mine.pte" || model.facts.isCached !== null)
        throw new Error(JSON.stringify(model.facts));
      let text = "";
      for await (const piece of model.chat(question, { temperature: 0, maxTokens })) text += piece;
      model.dispose();
      await folder.removeEntry("mine.pte");
      return text;
    },
    [QUESTION, TOKENS],
  );
  await page.close();
  return plain(text);
}

/** A host that sets no headers: the service worker does, after the page has loaded itself again. */
async function checkPlainHost(browser, program, expected) {
  const server = await serve(program, new Map(), false);
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(`${addressOf(server)}index.html`);
    await page.waitForFunction(() => globalThis.crossOriginIsolated);
    await start(page, `${addressOf(server)}index.html`);
    assert.equal(await ask(page), expected, "the answer on a host without headers");
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}

/** The demo model with random AQLM weights in one layer, and the rest of that layer as it was. */
async function aqlmProgram() {
  const model = await loadCheckpoint(join(root, "models", "shakespeare"));
  const random = (length, size) => Float32Array.from({ length }, (_, i) => size * Math.sin(i * i + i));
  for (const { name, shape } of model.decoder.slots.filter(({ name }) => /layers\.0\.mlp/.test(name))) {
    const [n, k] = shape;
    const form = { n, k, codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 };
    const codes = Uint8Array.from({ length: (n * k) / 4 }, (_, i) => i * 7919 + (i >> 3));
    const load = async () => ({ ...form, codes, vectors: random(2 * 256 * 8, 0.05), scales: random(n, 1) });
    model.replaceWeight(name, aqlmWeight(name, form, { vectors: "f32", scales: "f32" }, load));
  }
  const path = join(pageFolder, "aqlm.pte");
  await exportProgram(model, path);
  await model.close();
  return path;
}

/** The demo model with states that no engine has room for. */
async function largeProgram() {
  const model = await loadCheckpoint(join(root, "models", "shakespeare"));
  const small = join(root, "build", "small-states.pte");
  await exportProgram(model, small, { target: "executorch", maxContextLen: 64 });
  await model.close();
  const file = await openFile(small);
  const program = await readProgram(file);
  const methods = program.methods.map((method) => ({
    ...method,
    memorySizes: method.memorySizes.map((bytes, memory) => (memory === STATE_MEMORY ? STATE_BYTES : bytes)),
  }));
  const path = join(root, "build", "large-states.pte");
  await saveProgram({ ...program, methods }, path);
  await file.close();
  return path;
}

/** A program that is refused before all of it has come, and one of AQLM weights. */
async function checkPrograms(page) {
  await loadFrom(page, "large.pte", "Cannot load: the program needs");
  assert.match(await page.textContent("#status"), /needs \d{11,} bytes of memory/);
  const expected = await nodeAnswer(await aqlmProgram());
  await loadFrom(page, "aqlm.pte", "Ready");
  assert.equal(await ask(page), expected, "the answer of AQLM weights");
  assert.match(await page.textContent("#kernels"), /aqlm_\S+_wasm/);
}

/** The text after the question by the likeliest tokens, one by one. `decoder`: prefill, step. */
async function greedyText(model, decoder) {
  const ids = model.tokenizer.encode(QUESTION);
  const tokens = [];
  let logits = await decoder.prefill(ids);
  while (tokens.length < TOKENS) {
    tokens.push(logits.indexOf(Math.max(...logits)));
    logits = await decoder.step(tokens.at(-1));
  }
  return model.tokenizer.decode(tokens);
}

/** The worker of `lowbit bundle` on a page: its messages give the text of Node's reference kernels. */
async function checkBundle(page, program) {
  const { files } = await bundleProgram(program, join(pageFolder, "bundle"));
  await page.evaluate(() => {
    const worker = new Worker("bundle/worker.js", { type: "module" });
    const waiting = new Map();
    worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = waiting.get(id);
      error === undefined ? resolve(result) : reject(new Error(error));
    };
    globalThis.callBundle = (call) =>
      new Promise((resolve, reject) => {
        worker.postMessage({ id: waiting.size, ...call });
        waiting.set(waiting.size, { resolve, reject });
      });
  });
  const call = (message) =>
    page.evaluate(async (m) => {
      const result = await globalThis.callBundle(m);
      return result instanceof Float32Array ? [...result] : result;
    }, message);
  const source = new URL("shakespeare-4bit.pte", page.url()).href;
  const { vocabularySize } = await call({ call: "load", source });
  const model = await loadProgram(program);
  const decoder = model.createDecoder();
  assert.equal(vocabularySize, decoder.vocabularySize);
  const bundled = { prefill: (ids) => call({ call: "prefill", ids }), step: (token) => call({ call: "step", token }) };
  assert.equal(await greedyText(model, bundled), await greedyText(model, decoder), "the text of the bundle's worker");
  await assert.rejects(call({ call: "load", source: `${source}.missing` }), /404/);
  await model.dispose();
  const sizes = files.map(({ path, gzippedBytes }) => `${basename(path)} ${(gzippedBytes / 1e3).toFixed(1)} kB`);
  console.log(`the bundle's worker answers as Node does: ${sizes.join(", ")}, gzipped`);
}

for (const name of ["aqlm.pte", "damaged.pte"]) rmSync(join(pageFolder, name), { force: true });
async function checkFeatures(page, expected) {
  await features.checkConversations(page, expected);
  await features.checkHalfWritten(page);
  await features.checkDeletedWhileAnswered(page);
  await features.checkRefusedLeavesNothing(page);
  await features.checkEdit(page, expected);
  await features.checkMarkdown(page);
  await features.checkThinkingAndTools(page);
  await checkMcp(page);
  await features.checkFiles(page);
  await features.checkSuggestions(page);
  await features.checkRepetition(page);
  await features.checkReload(page);
  await features.checkAxe(page);
  await features.checkKeyboard(page);
  console.log("conversations, changed questions, Markdown, tools, files, axe, keys");
}

const pageBytes = await buildWeb();
console.log(`${(pageBytes / 1e3).toFixed(1)} kB of JavaScript, gzipped`);
assert.ok(pageBytes < PAGE_BYTES_MAX);

const program = await demoProgram();
copyFileSync(program, join(pageFolder, "shakespeare-4bit.pte"));
await writeModels(pageFolder);
writeFileSync(join(pageFolder, "damaged.pte"), readFileSync(program).subarray(0, 100_000));
const expected = await nodeAnswer(program);
let changes = 0;
const files = new Map([
  ["/cut.pte", { starts: [], rest: "cut" }],
  ["/slow.pte", { starts: [], rest: "never" }],
  ["/shared.pte", { starts: [], rest: "later" }],
  ["/accessible.pte", { starts: [], rest: "later" }],
  ["/typed.pte", { starts: [], rest: "later" }],
  ["/bare.pte", { starts: [], rest: "at once", hasBareHead: true }],
  ["/kept.pte", { starts: [], rest: "at once", hasNoHead: true, date: new Date(0).toUTCString() }],
  [
    "/changing.pte",
    {
      ...{ starts: [], rest: "later" },
      get date() {
        return new Date(1e12 + 1000 * changes++).toUTCString();
      },
    },
  ],
  ["/dated.pte", { starts: [], rest: "at once", date: new Date(0).toUTCString() }],
  ["/large.pte", { starts: [], rest: "never", bytes: readFileSync(await largeProgram()) }],
]);
const server = await serve(program, files);
const address = addressOf(server);
const browser = await launchChromium();
try {
  await checkFirstVisit(browser, address);
  const context = await browser.newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error.message}`));
  await recordWorkers(page);
  await start(page, address);
  assert.ok(await page.evaluate(() => crossOriginIsolated), "the page is isolated");
  assert.equal(await ask(page), expected, "the answer of the page");
  assert.match(await page.textContent("#kernels"), /linear_a8b32_wx_\S+_wasm/);
  console.log("the page answers as Node does");
  await checkBundle(page, program);
  assert.equal(await checkModuleScript(context, address), expected, "the answer of a module script");
  await checkIdle(browser);
  if (process.argv.includes("--screenshots")) await takeScreenshots(page);
  await page.evaluate(() => globalThis.workers.at(-1).terminate());
  await checkInstallable(page);
  await page.click("#reset");
  await checkStop(page, expected);
  await checkAccessible(page, expected);
  await checkRefused(page, expected);
  await checkComposition(page);
  await checkFocus(page);
  await checkManyPieces(page);
  await checkReadable(page);
  await checkFailedWorker(page, expected);
  console.log("an answer can be stopped; what is read out");

  await checkFeatures(page, expected);
  await page.setInputFiles("#file", program);
  await status(page, "Ready");
  assert.equal(await ask(page), expected, "the answer of a file from disk");
  assert.equal(await page.inputValue("#file"), "", "the file chosen, so that it can be chosen again");
  await loadFrom(page, "missing.pte", "Cannot load: http");
  assert.match(await page.textContent("#status"), /404/);
  await loadFrom(page, "damaged.pte", "Cannot load: http");
  await loadFrom(page, "cut.pte", "Ready");
  assert.equal(files.get("/cut.pte").starts.length, 2, "requests of a download that was cut");
  assert.ok(files.get("/cut.pte").starts[1] > 0, "the second asks for the rest");
  assert.equal(await ask(page), expected, "the answer of a model whose download was cut");
  await checkReplaced(page, program, files.get("/dated.pte"));
  await checkSuperseded(page);
  await checkBareHead(page, files.get("/bare.pte"));
  await checkKept(page, files.get("/kept.pte"));
  console.log("files from disk, missing, damaged, cut and replaced ones");
  await checkGguf(browser, page, { address, folder: pageFolder, files });
  console.log("a GGUF answers as in Node");
  await checkTexts(context, { address, files });
  console.log("embeddings are Node's");
  await checkPrograms(page);
  console.log("a program that is too large, and AQLM weights");
  await checkQuota(browser, address, expected);
  await checkBlockedStorage(browser, address, expected);
  await checkFullStorage(browser, program);
  await checkSilentServer(browser, program);
  await checkPlainHost(browser, program, expected);
  await checkOneThread(browser, program, expected);
  await checkServedPage(browser, program, expected);
  console.log("no room for the program; a host without headers; one thread");

  const second = await context.newPage();
  await start(second, address);
  await loadFrom(second, "shakespeare-4bit.pte", "Ready");
  assert.equal(await ask(second), expected, "the answer in a second tab");
  await checkCancel(page, second, expected);
  await checkTogether([page, second], files.get("/shared.pte"), expected);
  await checkTogetherReplaced([page, second]);
  await second.close();
  await new Promise((resolve) => server.close(resolve).closeAllConnections());
  await start(page, `${address}index.html`);
  assert.ok(await page.evaluate(() => crossOriginIsolated), "the page is isolated without its server");
  assert.equal(await ask(page), expected, "the answer without a server");
  console.log("two tabs; a reload without the server");
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
