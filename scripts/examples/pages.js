/** The examples in a page, in headless Chromium. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import { launchChromium } from "../wasm/browser.js";
import { installExample, run } from "./project.js";

const QUESTION = "Speak, what trade art thou?";
const PATIENCE = 120_000;

/** A port that is free. @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Waits until a server answers. @param {string} address @param {() => string} output of the server, for the error */
async function untilThere(address, output) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; ) {
    if (
      await fetch(address).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`${address} does not answer\n${output()}`);
}

/** Opens a page, asks its model and checks that an answer comes, on all threads. @param {string} address @param {string} name */
async function ask(address, name) {
  const browser = await launchChromium();
  try {
    const page = await browser.newPage();
    const problems = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    await page.goto(address);
    const status = (text) =>
      page
        .waitForFunction((wanted) => document.querySelector("[role=status]")?.textContent === wanted, text, {
          timeout: PATIENCE,
        })
        .catch(async (error) => {
          const shown = await page.locator("[role=status]").textContent();
          throw new Error(`${name}: the page says "${shown}", not "${text}"; ${problems.join("; ")}`, { cause: error });
        });
    await status("Ready");
    assert.equal(await page.evaluate(() => globalThis.crossOriginIsolated), true, `${name}: the page may use threads`);
    await page.fill("input[name=message]", QUESTION);
    await page.click("button");
    await page.waitForFunction(() => document.querySelector("#answer").textContent !== "", null, { timeout: PATIENCE });
    await status("Ready");
    const answer = await page.locator("#answer").textContent();
    assert.match(answer, /\w{3}/, `${name}: the model answers, not "${answer}"`);
    assert.deepEqual(problems, [], name);
    console.log(`${name}: ${JSON.stringify(answer.slice(0, 60))}`);
  } finally {
    await browser.close();
  }
}

/** Serves a project by one of its scripts while its page is asked. @param {string} project @param {string} script @param {string} name */
async function serveAndAsk(project, script, name) {
  const port = await freePort();
  // A group of its own, so that what npm starts ends with it.
  const server = spawn("npm", ["run", "-s", script, "--", "--port", String(port)], { cwd: project, detached: true });
  let output = "";
  for (const stream of [server.stdout, server.stderr])
    stream.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
  try {
    const address = `http://localhost:${port}/`;
    await untilThere(address, () => output);
    await ask(address, name);
  } finally {
    process.kill(-server.pid, "SIGTERM");
  }
}

/** The development server, and what is built. @param {import("./project.js").Context} context */
export async function testVitePage(context) {
  const project = installExample("vite-page", context, { files: join("public", "model.pte") });
  await serveAndAsk(project, "dev", "vite-page, development");
  await run("npm", ["run", "-s", "build"], { cwd: project });
  await serveAndAsk(project, "preview", "vite-page, built");
}

/** What is built. @param {import("./project.js").Context} context */
export async function testNextPage(context) {
  const project = installExample("next-page", context, { files: join("public", "model.pte") });
  await run("npm", ["run", "-s", "build"], { cwd: project });
  await serveAndAsk(project, "start", "next-page");
}
