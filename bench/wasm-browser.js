/** Engines in headless Chromium: ours in a worker of a page, and wllama as its page uses it. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { launchChromium } from "../scripts/wasm/browser.js";
import { staticServer } from "../scripts/web/static-server.js";

const place = (/** @type {string} */ name) => fileURLToPath(new URL(name, import.meta.url));
const folder = place("../build/bench-page/");
/** Tokens that wllama adds to a prompt: its beginning, and a space in three bytes. */
const PROMPT_OVERHEAD = 4;

async function makePage() {
  mkdirSync(folder, { recursive: true });
  const common = { bundle: true, format: "esm", target: "es2022", external: ["node:*"], logLevel: "warning" };
  await build({ ...common, entryPoints: [place("wasm-worker.js")], outfile: join(folder, "worker.js") });
  writeFileSync(join(folder, "index.html"), '<!doctype html><title>bench</title><link rel="icon" href="data:,">');
}

/** The page, models beside it under /models/, and wllama under /wllama/. @param {string} models */
async function servePage(models) {
  const others = { "/models/": models, "/wllama/": place("node_modules/@wllama/wllama/esm") };
  const servers = Object.entries(others).map(([prefix, root]) => [prefix, staticServer(root)]);
  const onRequest = (request, response) => {
    const found = servers.find(([prefix]) => request.url.startsWith(prefix));
    if (!found) return false;
    request.url = request.url.slice(found[0].length - 1);
    found[1].emit("request", request, response);
    return true;
  };
  const server = staticServer(folder, { onRequest });
  await new Promise((resolve) => server.listen(0, () => resolve(null)));
  return server;
}

/** In the page. */
function runOurs(request) {
  return new Promise((resolve, reject) => {
    const worker = new Worker("worker.js", { type: "module" });
    worker.onerror = (event) => reject(new Error(event.message));
    worker.onmessage = ({ data }) => {
      worker.terminate();
      if (data.error) reject(new Error(data.error));
      else resolve(data);
    };
    worker.postMessage(request);
  });
}

/** In the page: times are those that wllama itself tells. */
async function runWllama({ url, threads, prompt, decode }) {
  const { Wllama } = await import("/wllama/index.js");
  const wllama = new Wllama({ default: "/wllama/wasm/wllama.wasm" }, { suppressNativeLog: true });
  const start = performance.now();
  const blob = await (await fetch(url)).blob();
  await wllama.loadModel([blob], { n_ctx: 1024, n_threads: threads, n_gpu_layers: 0 });
  const loadMs = performance.now() - start;
  const never = { 2: -100 };
  const { timings } = await wllama.createCompletion({
    ...{ prompt: "!".repeat(prompt), max_tokens: decode, temperature: 0, logit_bias: never },
  });
  await wllama.exit();
  return {
    loadMs,
    decode: timings.predicted_per_second,
    prefill: [timings.prompt_per_second],
    tokens: timings.prompt_n,
  };
}

/** Runs `work` with functions that measure in a browser. @param {string} models folder of the files, also in folders of it */
export async function withBrowser(models, work) {
  await makePage();
  const server = await servePage(models);
  const browser = await launchChromium();
  const address = `http://localhost:${/** @type {any} */ (server.address()).port}/`;
  const inPage = async (run, request) => {
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      await page.goto(address);
      return await page.evaluate(run, request);
    } finally {
      await context.close();
    }
  };
  const urlOf = (file) => `${address}models/${relative(models, file)}`;
  try {
    return await work({
      version: browser.version(),
      ours: (file, threads, counts) => inPage(runOurs, { url: urlOf(file), threads, counts }),
      wllama: (file, threads, { prompts, decode }) =>
        inPage(runWllama, { url: urlOf(file), threads, prompt: prompts[0] - PROMPT_OVERHEAD, decode }),
    });
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}
