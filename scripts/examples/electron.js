/**
 * Tests the example for Electron. npm's package downloads Electron's binary from GitHub; if that is available, the example runs
 * in it. Otherwise a stand-in for Electron's modules runs the main process in Node, and sends it the window's requests.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { installExample, run } from "./project.js";

const QUESTION = "Speak, what trade art thou?";

/** Asks as the window does, then ends the program. */
const asking = `
  const text = await (async () => {
    const form = document.querySelector("form");
    form.message.value = ${JSON.stringify(QUESTION)};
    form.requestSubmit();
    const status = document.querySelector("[role=status]");
    do await new Promise((resolve) => setTimeout(resolve, 50)); while (status.textContent !== "Ready");
    return document.querySelector("#answer").textContent;
  })();`;

/** A main process that drives the example's own. */
const driver = `
  import { app } from "electron";
  app.on("web-contents-created", (_event, contents) => contents.once("did-finish-load", async () => {
    const text = await contents.executeJavaScript(${JSON.stringify(`(async () => { ${asking} return text; })()`)});
    process.stdout.write(text);
    app.exit(0);
  }));
  await import("./main.js");
`;

/** The modules of Electron that the example's main process uses; the window asks once its page is loaded. */
const standIn = `
  const handlers = new Map();
  export const ipcMain = { handle: (channel, handler) => handlers.set(channel, handler) };
  export const app = { whenReady: async () => {}, on() {}, quit() {} };
  export class BrowserWindow {
    constructor({ webPreferences }) { if (!webPreferences.preload.endsWith("preload.cjs")) throw new Error("no preload"); }
    async loadFile() {
      const sender = { send: (channel, text) => channel === "text" && process.stdout.write(text) };
      await handlers.get("chat")({ sender }, ${JSON.stringify(QUESTION)});
      process.exit(0);
    }
  }
`;

/** @param {string} project */
function hasElectron(project) {
  try {
    execFileSync("npx", ["--no-install", "install-electron"], { cwd: project, stdio: "ignore", timeout: 60_000 });
    return true;
  } catch {
    return false;
  }
}

/** @param {import("./project.js").Context} context */
export async function testElectron(context) {
  const isWanted = process.env.ELECTRON === "1";
  const project = installExample("electron", context, { omit: isWanted ? [] : ["electron"] });
  if (isWanted && hasElectron(project)) {
    writeFileSync(join(project, "driver.js"), driver);
    const args = ["--no-install", "electron", "--no-sandbox", "--headless", "driver.js"];
    const text = await run("npx", args, { cwd: project });
    assert.match(text, /\w{3}/, `the model answers, not "${text}"`);
    return;
  }
  console.log(
    "electron: its program comes from GitHub (ELECTRON=1 tries that); Node runs the main process with a stand-in",
  );
  const folder = join(project, "node_modules", "electron");
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "electron", type: "module", exports: "./index.js" }),
  );
  writeFileSync(join(folder, "index.js"), standIn);
  const text = await run(process.execPath, ["main.js"], { cwd: project });
  assert.match(text, /\w{3}/, `the model answers, not "${text}"`);
}
