/**
 * `npm run test:web`: the page in headless Chromium (Debian's package, or CHROMIUM) against the text that Node's
 * reference kernels generate; `--screenshots` writes docs/page-*.png. Uses playwright-core of web/package.json.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { root } from "./native-sources.js";

process.env.LOWBIT_BACKEND = "reference";
const { buildWeb, pageFolder } = await import("./build-web.js");
const { demoProgram } = await import("./demo-model.js");
const { staticServer } = await import("./static-server.js");
const { loadProgram } = await import("../dist/index.js");

const QUESTION = "Speak, what trade art thou?";
const TOKENS = 48;
const PAGE_BYTES_MAX = 150e3;

function chromium() {
  if (!existsSync(join(root, "web", "node_modules")))
    execFileSync("npm", ["install", "--no-audit", "--no-fund"], { cwd: join(root, "web"), stdio: "inherit" });
  return createRequire(join(root, "web", "package.json"))("playwright-core").chromium;
}

async function nodeAnswer(program) {
  const model = await loadProgram(program);
  let text = "";
  for await (const piece of model.createConversation().send(QUESTION, { temperature: 0, maxTokens: TOKENS }))
    text += piece;
  return text;
}

const status = (page, text) =>
  page.waitForFunction((t) => document.getElementById("status").textContent.startsWith(t), text);

async function ask(page) {
  await page.fill("#temperature", "0");
  await page.fill("#maxTokens", `${TOKENS}`);
  await page.fill("#input", QUESTION);
  await page.press("#input", "Enter");
  await page.waitForSelector("#send:visible");
  await status(page, "Ready");
  return page.locator(".message.model span").last().textContent();
}

/** Serves the page; each path of `cuts` is answered with half of the program, once, and the rest when asked for. */
function serve(program, cuts) {
  const bytes = readFileSync(program);
  const onRequest = (request, response) => {
    const cut = cuts.get(request.url);
    if (!cut || request.method !== "GET") return false;
    const start = Number(request.headers.range?.match(/\d+/)?.[0] ?? 0);
    cut.starts.push(start);
    const headers = { ETag: '"one"', "Content-Length": bytes.length - start };
    const range = { "Content-Range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` };
    response.writeHead(start > 0 ? 206 : 200, start > 0 ? { ...headers, ...range } : headers);
    if (start > 0) response.end(bytes.subarray(start));
    else response.write(bytes.subarray(0, bytes.length / 2), () => setTimeout(() => response.destroy(), 200));
    return true;
  };
  const server = staticServer(pageFolder, { onRequest });
  return new Promise((resolve) => server.listen(0, () => resolve(server)));
}

async function loadFrom(page, address, expected) {
  await page.fill("#url", address);
  await page.click("#fetch");
  await status(page, expected);
}

/** Stops an answer at its first words; the next one is whole again. */
async function checkStop(page, expected) {
  const settings = { temperature: 3, seed: 7, maxTokens: 400 };
  for (const [name, value] of Object.entries(settings)) await page.fill(`#${name}`, `${value}`);
  await page.fill("#input", "Tell me everything.");
  // In the page, since an answer of so small a model may end before a click from outside comes.
  await page.evaluate(() => {
    const observer = new MutationObserver(() => {
      if (!document.querySelector(".message.model:last-child span")?.textContent) return;
      observer.disconnect();
      document.getElementById("stop").click();
    });
    observer.observe(document.getElementById("messages"), { childList: true, subtree: true });
  });
  await page.press("#input", "Enter");
  await status(page, "Stopped");
  await page.click("#reset");
  await status(page, "New conversation");
  assert.equal(await ask(page), expected, "the answer after a stop");
}

async function screenshots(page) {
  if (!process.argv.includes("--screenshots")) return;
  const shot = (name) => page.screenshot({ path: join(root, "docs", `page-${name}.png`) });
  await page.setViewportSize({ width: 1100, height: 720 });
  await shot("light");
  await page.click("#theme");
  await shot("dark");
  await page.click("#theme");
  await page.setViewportSize({ width: 390, height: 760 });
  await shot("phone");
}

console.log(`${((await buildWeb()) / 1e3).toFixed(1)} kB of JavaScript, gzipped`);
assert.ok((await buildWeb()) < PAGE_BYTES_MAX);
const program = await demoProgram();
copyFileSync(program, join(pageFolder, "shakespeare-4bit.pte"));
writeFileSync(join(pageFolder, "damaged.pte"), readFileSync(program).subarray(0, 100_000));
const expected = await nodeAnswer(program);
const cuts = new Map([["/cut.pte", { starts: [] }]]);
const server = await serve(program, cuts);
const address = `http://localhost:${server.address().port}/`;
const browser = await chromium().launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error.message}`));
  await page.goto(address);
  await status(page, "Ready");
  assert.ok(await page.evaluate(() => crossOriginIsolated), "the page is isolated");
  assert.equal(await ask(page), expected, "the answer of the page");
  assert.match(await page.textContent("#kernels"), /linear_a8_wx_\S+_wasm/);
  console.log("the page answers as Node does");
  await screenshots(page);
  await page.click("#reset");
  await checkStop(page, expected);
  console.log("an answer can be stopped");

  await page.setInputFiles("#file", program);
  await status(page, "Ready");
  assert.equal(await ask(page), expected, "the answer of a file from disk");
  await loadFrom(page, "missing.pte", "Cannot load: http");
  assert.match(await page.textContent("#status"), /404/);
  await loadFrom(page, "damaged.pte", "Cannot load: http");
  await loadFrom(page, "cut.pte", "Ready");
  assert.equal(cuts.get("/cut.pte").starts.length, 2, "requests of a download that was cut");
  assert.ok(cuts.get("/cut.pte").starts[1] > 0, "the second asks for the rest");
  assert.equal(await ask(page), expected, "the answer of a model whose download was cut");
  console.log("files from disk, missing, damaged and cut ones");

  const second = await context.newPage();
  await second.goto(address);
  await status(second, "Ready");
  assert.equal(await ask(second), expected, "the answer in a second tab");
  await second.close();
  await new Promise((resolve) => server.close(resolve).closeAllConnections());
  await page.reload();
  await status(page, "Ready");
  assert.ok(await page.evaluate(() => crossOriginIsolated), "the page is isolated without its server");
  assert.equal(await ask(page), expected, "the answer without a server");
  console.log("two tabs; a reload without the server");
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
