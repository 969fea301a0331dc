/** Debian's Chromium, or that of CHROMIUM, driven by playwright-core of web/package.json; both installed where missing. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { installPackages } from "../arm/toolchain.js";
import { root } from "../native/sources.js";

/** How long pages are waited for: on busy cores an answer takes more than playwright's half a minute. */
const TIMEOUT_MS = 120_000;

/** A headless browser. @param {readonly string[]} [args] further arguments */
export async function launchChromium(args = []) {
  const folder = join(root, "web");
  if (!process.env.CHROMIUM) installPackages({ chromium: "chromium" });
  if (!existsSync(join(folder, "node_modules")))
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder, stdio: "inherit" });
  const { chromium } = createRequire(join(folder, "package.json"))("playwright-core");
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", ...args],
  });
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (/** @type {object | undefined} */ options) => {
    const context = await newContext(options);
    context.setDefaultTimeout(TIMEOUT_MS);
    return context;
  };
  return browser;
}
