/**
 * The speed of WebAssembly: in headless Chromium beside wllama, in two versions of Node beside our native code, each in a
 * process or page of its own, engines in turns, medians of rounds; each part has a file, results/wasm-<part>.md. Build first.
 *
 *     node bench/wasm.js [--rounds 3] [--threads 2,1] [--shapes 1b,110m] [--parts wllama,native,bits,module] [--decode 24]
 */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { nodeOfNpm } from "../scripts/wasm/engines.js";
import { ggufOf } from "./make-model.js";
import { programOf } from "./programs.js";
import { digits, median, table, writeReport } from "./report.js";
import { withBrowser } from "./wasm-browser.js";
import { measure } from "./wasm-measure.js";

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    threads: { type: "string", default: "2,1" },
    shapes: { type: "string", default: "1b,110m" },
    parts: { type: "string", default: "wllama,native,bits,module" },
    decode: { type: "string", default: "24" },
    /** A process of its own measures this file and prints the result. */
    measure: { type: "string" },
  },
});
const rounds = Number(options.rounds);
const threadCounts = options.threads.split(",").map(Number);
const parts = options.parts.split(",");
const counts = { prompts: [128], decode: Number(options.decode) };
/** wllama answers a token in half a second. */
const WLLAMA_DECODE = 8;

/** A program measured in a Node. @param {string} node @param {string} backend @param {string} path @param {number} threads @param {number[]} prompts */
function inNode(node, backend, path, threads, prompts) {
  const request = JSON.stringify({ path, threads, prompts });
  const env = { ...process.env, LOWBIT_BACKEND: backend };
  if (backend === "native") delete env.LOWBIT_BACKEND;
  const args = [fileURLToPath(import.meta.url), "--decode", options.decode, "--measure", request];
  return JSON.parse(execFileSync(node, args, { env, encoding: "utf8" }).trim().split("\n").at(-1));
}

async function measureHere({ path, threads, prompts }) {
  const { loadProgram } = await import("../dist/index.js");
  const result = await measure(() => loadProgram(path, { threads }), { ...counts, prompts });
  console.log(JSON.stringify(result));
}

/** Asks all engines in turns. @param {Record<string, () => Promise<any> | any>} engines @returns {Promise<Record<string, any[]>>} */
async function inTurns(engines) {
  const results = Object.fromEntries(Object.keys(engines).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of Object.entries(engines)) {
      results[name].push(await run());
      console.error(`round ${round + 1} of ${rounds}: ${name}: ${JSON.stringify(results[name].at(-1))}`);
    }
  return results;
}

const of = (results, value) => median(results.map(value));
const times = (a, b) => `${digits(a / b)}x`;

/** @param {string} shape */
async function besideWllama(shape) {
  const program = await programOf(shape, "4-bit g32");
  const gguf = await ggufOf(shape);
  return withBrowser(dirname(program), async ({ version, ours, wllama }) => {
    const rows = [];
    for (const threads of threadCounts) {
      const results = await inTurns({
        ours: () => ours(program, threads, counts),
        wllama: () => wllama(gguf, threads, { ...counts, decode: WLLAMA_DECODE }),
      });
      const [decode, peerDecode] = [results.ours, results.wllama].map((all) => of(all, (r) => r.decode));
      const [prefill, peerPrefill] = [results.ours, results.wllama].map((all) => of(all, (r) => r.prefill[0]));
      rows.push([
        ...[shape, String(threads), digits(decode), digits(peerDecode), times(decode, peerDecode)],
        ...[digits(prefill), digits(peerPrefill), times(prefill, peerPrefill)],
      ]);
    }
    const head = ["shape", "threads", "decode", "wllama", "", "prefill 128", "wllama", ""];
    return `## Chromium ${version} beside wllama 3.8.1\n\nTokens a second; 4 bits in groups of 32, wllama Q4_0.\n\n${table(head, rows)}`;
  });
}

async function besideNative() {
  const newest = nodeOfNpm("latest");
  const node20 = nodeOfNpm("20");
  const program = await programOf("1b", "4-bit g32");
  const prompts = [128, 512];
  const rows = [];
  await withBrowser(dirname(program), async ({ version, ours }) => {
    for (const threads of threadCounts) {
      const results = await inTurns({
        native: () => inNode(newest, "native", program, threads, prompts),
        "WebAssembly, newest Node": () => inNode(newest, "wasm", program, threads, prompts),
        [`WebAssembly, Chromium ${version}`]: () => ours(program, threads, { ...counts, prompts }),
        "WebAssembly, Node 20": () => inNode(node20, "wasm", program, threads, prompts),
      });
      const native = of(results.native, (r) => r.decode);
      for (const [name, all] of Object.entries(results)) {
        const decode = of(all, (r) => r.decode);
        const prefills = prompts.map((_, i) => digits(of(all, (r) => r.prefill[i])));
        const first = of(all, (r) => r.firstTokenMs / (1000 / r.decode));
        rows.push([name, String(threads), digits(decode), times(decode, native), ...prefills, digits(first)]);
      }
    }
  });
  const head = [
    "1b, 4 bits, groups of 32",
    "threads",
    "decode",
    "of native",
    "prefill 128",
    "prefill 512",
    "first token",
  ];
  return `## Beside native code\n\nTokens a second; the first token after load in times of a later one.\n\n${table(head, rows)}`;
}

async function bitsOfWeights() {
  const newest = nodeOfNpm("latest");
  const schemes = ["4-bit g32", "4-bit g128", "2-bit g32"];
  const paths = Object.fromEntries(
    await Promise.all(schemes.map(async (scheme) => [scheme, await programOf("1b", scheme)])),
  );
  const results = await inTurns(
    Object.fromEntries(schemes.map((scheme) => [scheme, () => inNode(newest, "wasm", paths[scheme], 2, [128])])),
  );
  const base = of(results["4-bit g32"], (r) => r.decode);
  const rows = schemes.map((scheme) => {
    const decode = of(results[scheme], (r) => r.decode);
    return [scheme, digits(decode), times(decode, base), digits(of(results[scheme], (r) => r.prefill[0]))];
  });
  return `## Widths\n\nNewest Node, 2 threads.\n\n${table(["1b", "decode", "", "prefill 128"], rows)}`;
}

/** Loading the demo model, and the code that is made for it. */
async function moduleOfDemo() {
  const demo = fileURLToPath(new URL("../build/shakespeare-4bit.pte", import.meta.url));
  if (!existsSync(demo)) await (await import("../scripts/demo-model.js")).demoProgram();
  const { buildWeb } = await import("../scripts/build-web.js");
  const weight = await buildWeb();
  const loads = await withBrowser(dirname(demo), ({ ours }) => inTurns({ demo: () => ours(demo, 2, counts) }));
  const probe = fileURLToPath(new URL("./wasm-module.js", import.meta.url));
  const made = JSON.parse(execFileSync(nodeOfNpm("latest"), [probe, demo], { encoding: "utf8" }));
  const rows = [
    ["load to first token, Chromium", `${digits(of(loads.demo, (r) => r.loadMs + r.firstTokenMs))} ms`],
    ["WebAssembly modules made", `${made.modules}, ${(made.bytes / 1e3).toFixed(1)} kB`],
    ["making and compiling them", `${digits(made.milliseconds)} ms`],
    ["JavaScript of the page, gzipped", `${(weight / 1e3).toFixed(1)} kB`],
  ];
  return `## Demo model\n\n${table(["", "value"], rows)}`;
}

const measured = {
  async wllama() {
    const sections = [];
    for (const shape of options.shapes.split(",")) sections.push(await besideWllama(shape));
    return sections;
  },
  native: async () => [await besideNative()],
  bits: async () => [await bitsOfWeights()],
  module: async () => [await moduleOfDemo()],
};

if (options.measure) await measureHere(JSON.parse(options.measure));
else
  for (const part of parts) {
    const sections = await measured[part]();
    const command = `node bench/wasm.js ${process.argv.slice(2).join(" ")}`.trim();
    writeReport(`wasm-${part}`, { title: "WebAssembly", command, sections });
  }
