/** Drives the page of web/ by playwright-core: a server for it, questions, and the answers of Node's reference kernels. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { staticServer } from "../web/static-server.js";

process.env.LOWBIT_BACKEND = "reference";
const { loadProgram } = await import("../../dist/index.js");

export const QUESTION = "Speak, what trade art thou?";
/** Few enough that no two words tie in a greedy answer: sums in another order would choose the other. */
export const TOKENS = 32;

/** A text as it reads, however it is laid out. @param {string} text */
export const plain = (text) => text.replace(/\s+/g, " ").trim();

/** @param {string} program a file */
export async function nodeAnswer(program) {
  const model = await loadProgram(program);
  let text = "";
  for await (const piece of model.createConversation().send(QUESTION, { temperature: 0, maxTokens: TOKENS }))
    text += piece;
  return plain(text);
}

/** Waits until the page's state begins with one of some texts; an error says what it was instead. */
export const status = (page, ...texts) =>
  page
    .waitForFunction((all) => all.some((t) => document.getElementById("status").textContent.startsWith(t)), texts)
    .catch(async (cause) => {
      throw new Error(`the page says "${await page.textContent("#status")}", not "${texts.join('" or "')}"`, { cause });
    });

/** Opens the page, and on a first visit chooses the first model. */
export async function start(page, address) {
  await page.goto(address);
  await page.waitForFunction(() => /^(Ready|Choose)/.test(document.getElementById("status").textContent));
  if (await page.isVisible("#start")) await page.click("#offers button");
  await status(page, "Ready");
}

/** Clicks a button of the header, which is in its menu on narrow screens. */
export async function clickAction(page, selector) {
  if (!(await page.isVisible(selector))) await page.click("#more");
  await page.click(selector);
}

/** Opens the panel of settings. */
export async function openSettings(page) {
  if (!(await page.isVisible("#settings"))) await clickAction(page, "#panel-toggle");
}

/** The last answer as it reads. */
export const lastAnswer = async (page) => plain(await page.locator(".message.model .text").last().textContent());

/** Asks the page's model in a new conversation and gives its answer. */
export async function ask(page) {
  await openSettings(page);
  await page.fill("#temperature", "0");
  await page.fill("#maxTokens", `${TOKENS}`);
  await page.click("#reset");
  await page.fill("#input", QUESTION);
  await page.press("#input", "Enter");
  await page.waitForSelector("#send:visible");
  await status(page, "Ready", "cut after");
  return lastAnswer(page);
}

/** Loads from an address, until the page's state begins with `expected`. */
export async function loadFrom(page, address, expected) {
  if (!(await page.isVisible("#start"))) await page.click("#model");
  await page.fill("#url", address);
  await page.click("#fetch");
  await status(page, expected);
}

/** Lists the page's workers in `workers`, `isEnded` when they were ended. Before the page is opened. */
export function recordWorkers(page) {
  return page.addInitScript(() => {
    globalThis.workers = [];
    globalThis.Worker = class extends globalThis.Worker {
      isEnded = false;
      constructor(...args) {
        super(...args);
        globalThis.workers.push(this);
        // Before the page's own listener.
        this.addEventListener("message", (event) => globalThis.onWorkerMessage?.(event));
      }
      terminate() {
        this.isEnded = true;
        super.terminate();
      }
    };
  });
}

/** A page with nothing but a module script of the package's files as they are. */
const unbundled = `<!doctype html><title>lowbit</title><script type="module">
  globalThis.imported = import("/dist/web/index.js").then(({ loadModel }) => loadModel);
</script>`;

/**
 * Serves the page, and the package's modules in dist/. `files`: programs, or other files with a `type`, by path, each with
 * `bytes` (those of `program` where it has none), `starts`, which gets the first byte of each answer, and what becomes of
 * the `rest` after half of an answer from the first byte on: it comes "at once", "later" or "never", or the connection is
 * "cut". With a `date` they have no ETag, with `hasBareHead` answers without a body do not say the length, with
 * `hasNoHead` there are no such answers, when `isSilent` there are none, and with a `failure` all are that status.
 */
export function serve(program, files, isIsolated = true) {
  const onRequest = (request, response) => {
    const file = files.get(request.url);
    if (!file) return false;
    if (file.isSilent) return true;
    if (file.failure) {
      response.writeHead(file.failure).end();
      return true;
    }
    const isHead = request.method === "HEAD";
    if (isHead && file.hasNoHead) {
      response.writeHead(405).end();
      return true;
    }
    const { bytes = readFileSync(program), date, rest, type, hasBareHead = false } = file;
    const start = Number(request.headers.range?.match(/\d+/)?.[0] ?? 0);
    const version = date ? { "Last-Modified": date } : { ETag: '"one"' };
    const range = start > 0 ? { "Content-Range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` } : {};
    const headers = { ...version, ...range, ...(type ? { "Content-Type": type } : {}) };
    const length = { "Content-Length": bytes.length - start };
    response.writeHead(start > 0 ? 206 : 200, { ...headers, ...(isHead && hasBareHead ? {} : length) });
    if (isHead) {
      response.end();
      return true;
    }
    file.starts.push(start);
    const half = bytes.length / 2;
    if (start > 0 || rest === "at once") response.end(bytes.subarray(start));
    else
      response.write(bytes.subarray(0, half), () => {
        if (rest === "cut") setTimeout(() => response.destroy(), 200);
        if (rest === "later") setTimeout(() => response.end(bytes.subarray(half)), 300);
      });
    return true;
  };
  const modules = staticServer(root);
  const onAny = (request, response) => {
    if (request.url === "/unbundled.html") {
      response.writeHead(200, { "Content-Type": "text/html" }).end(unbundled);
      return true;
    }
    if (request.url.startsWith("/dist/")) return modules.emit("request", request, response);
    return onRequest(request, response);
  };
  const server = staticServer(join(root, "build", "web"), { onRequest: onAny, isIsolated });
  return new Promise((resolve) => server.listen(0, () => resolve(server)));
}

export const addressOf = (server) => `http://localhost:${server.address().port}/`;
