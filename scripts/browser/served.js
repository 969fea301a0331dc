/** Tests the page that `lowbit serve` sends, with the demo model: same text as Node's, asking for the API key, headers. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { root } from "../native/sources.js";
import { ask, lastAnswer, openSettings, status } from "./driver.js";

const KEY = "sk-page-test";

/** Starts a server at a free port; gives its process and address. */
async function startServer(program) {
  const argv = [join(root, "dist/cli/main.js"), "serve", `demo=${program}`, "--port", "0", "--no-log"];
  const env = { ...process.env, LOWBIT_API_KEYS: KEY, LOWBIT_BACKEND: "reference" };
  const server = spawn(process.execPath, argv, { env, stdio: ["ignore", "ignore", "pipe"] });
  for await (const line of createInterface({ input: server.stderr })) {
    const [, address] = /chat page at (\S+);/.exec(line) ?? [];
    if (address) return { server, address };
  }
  throw new Error("lowbit serve ended before it listened");
}

export async function checkServedPage(browser, program, expected) {
  const { server, address } = await startServer(program);
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    const problems = [];
    page.on("pageerror", ({ message }) => problems.push(message));
    const response = await page.goto(address);
    const { "content-security-policy": policy, ...headers } = response.headers();
    assert.match(policy, /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'$/);
    assert.equal(headers["cross-origin-opener-policy"], "same-origin");
    assert.equal((await page.request.get(`${address}v1/models`)).status(), 401, "models without a key");
    assert.equal((await page.request.get(`${address}..%2fcli/main.js`)).status(), 401, "a file that is not the page's");
    await page.fill("dialog input", "sk-wrong");
    await page.keyboard.press("Enter");
    await page.getByText("The server does not take this key.").waitFor();
    await page.fill("dialog input", KEY);
    await page.keyboard.press("Enter");
    await status(page, "Ready: demo");
    assert.equal(await ask(page), expected, "the answer of the server's page");
    assert.match(await page.textContent("#corner"), /context \d+ of 512$/);
    await page.reload();
    await status(page, "Ready: demo");
    await page.locator("#list li > button").first().click();
    assert.equal(await lastAnswer(page), expected, "the conversation after a reload, without a question for the key");
    await openSettings(page);
    await page.fill("#maxTokens", "400");
    await page.fill("#temperature", "2");
    await page.fill("#input", "Go on and on.");
    await page.press("#input", "Enter");
    await page.click("#stop");
    await status(page, "Stopped");
    await page.fill("#input", "word ".repeat(2000));
    await page.press("#input", "Enter");
    await status(page, "Cannot answer: ");
    assert.match(await page.textContent("#status"), /New conversation makes room$/);
    const kept = await page.evaluate(() => [localStorage, sessionStorage].map((kept) => JSON.stringify(kept)));
    assert.deepEqual(
      kept.map((text) => text.includes("sk-page-test")),
      [false, true],
      "where the key is kept",
    );
    assert.deepEqual(problems, [], "errors of the page");
    console.log("the page of lowbit serve answers as Node does");
  } finally {
    await context.close();
    server.kill();
  }
}
