/** Tests tools of an MCP server in the page, in Chromium: asked for, refused, always allowed, and faulty servers. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { lastAnswer, openSettings, status } from "./driver.js";
import { script } from "./features.js";

async function startServer() {
  const child = spawn(process.execPath, [join(root, "test/support/mcp-server.js"), "--http", "--open"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await once(child.stdout, "data");
  return { child, address: String(line).trim() };
}

/** An answer that calls the weather of a city, and what it says then. */
const calls = (city) => [
  {
    events: [
      { type: "toolCall", index: 0, id: "c1", name: "weather" },
      { type: "toolArguments", index: 0, text: JSON.stringify({ city }) },
    ],
    finishReason: "toolCalls",
  },
  { events: [{ type: "text", text: `Of ${city}.` }] },
];

/** Asks, does something with the question whether to run the call, and gives what the model was told. */
async function resultOf(page, city, decide) {
  await script(page, calls(city));
  await page.fill("#input", `The weather of ${city}?`);
  await page.press("#input", "Enter");
  await decide();
  await page.waitForSelector("#send:visible");
  await status(page, "Ready");
  assert.equal(await lastAnswer(page), `Of ${city}.`);
  const asked = await page.evaluate(() => globalThis.asked.at(-1).content.at(-1).content);
  assert.equal((await page.locator("details.call").last().locator("pre").allTextContents()).at(-1), asked);
  return asked;
}

export async function checkMcp(page) {
  const { child, address } = await startServer();
  try {
    await openSettings(page);
    await page.click("#reset");
    await status(page, "New conversation");
    assert.ok(await page.isDisabled("#mcp"), "servers of tools for a model without tools");
    await page.evaluate(() => {
      document.getElementById("mcp").disabled = false;
    });
    await page.fill("#mcp", address);
    const press = (name) => async () => {
      assert.equal(await page.textContent("dialog h2"), "Run weather?");
      assert.match(await page.textContent("dialog p"), /\/mcp is given \{"city":/);
      await page.getByRole("button", { name, exact: true }).click();
    };
    assert.equal(await resultOf(page, "Paris", press("Cancel")), "Error: the user refused this call");
    assert.match(await resultOf(page, "Oslo", press("Run")), /^Oslo: grey/);
    assert.match(await resultOf(page, "Rome", press("Always run")), /^Rome: grey/);
    assert.match(await resultOf(page, "Atlantis", async () => {}), /^Error: .*no such city/);
    const names = await page.evaluate(() => globalThis.asked.at(-1).options.tools.map(({ name }) => name));
    assert.deepEqual(names, ["weather", "now"], "tools that the model is told of");
    await page.fill("#mcp", "http://127.0.0.1:59871/mcp");
    await page.fill("#input", "And now?");
    await page.press("#input", "Enter");
    await page.getByText("Cannot answer: MCP server http://127.0.0.1:59871/mcp: cannot be reached").waitFor();
    await page.fill("#mcp", "");
    await page.fill("#input", "");
  } finally {
    child.kill();
  }
}
