/**
 * The measurements of bench/wasm.js, in parts short enough to be run one at a time. In each part some engines take turns, each
 * in a process or a page of its own. `table` makes table rows of the results of all rounds.
 */
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { demoProgram } from "../scripts/demo/model.js";
import { nodeOfNpm } from "../scripts/wasm/engines.js";
import { buildWeb } from "../scripts/web/build.js";
import { ggufOf } from "./make-model.js";
import { programOf } from "./programs.js";
import { digits, median } from "./report.js";
import { shapes } from "./shapes.js";

/** @typedef {import("./wasm-measure.js").Timings} Timings */
/** @typedef {{ prompts: number[], decode: number } | { firstPrompt: number }} Counts Tokens. */
/**
 * @typedef {object} Part
 * @property {string} title Sections of one title make one table.
 * @property {string[]} head
 * @property {(browser: any) => Promise<Record<string, () => Promise<any>>>} engines
 * @property {(found: Record<string, any[]>) => string[][]} rows
 */

const REVECTORIZE = "LOWBIT_WASM_REVECTORIZE";
const NATIVE = "native, newest Node";
const NEWEST = "WebAssembly, newest Node";
const BASE = "4-bit g32";

/** A program measured in a Node. @param {{ node: string, backend?: string, path: string, threads: number, counts: Counts, extra?: Record<string, string> }} request */
function inNode({ node, backend = "wasm", path, threads, counts, extra = {} }) {
  const { LOWBIT_BACKEND: _, ...rest } = process.env;
  const env = backend === "native" ? rest : { ...rest, ...extra, LOWBIT_BACKEND: backend };
  const program = fileURLToPath(new URL("./wasm-process.js", import.meta.url));
  const args = [program, JSON.stringify({ path, threads, counts })];
  return JSON.parse(execFileSync(nodeOfNpm(node), args, { env, encoding: "utf8" }).trim().split("\n").at(-1));
}

const of = (results, value) => median(results.map(value));
const decodeOf = (results) => of(results, (r) => r.decode);
const prefillOf = (results, i) => of(results, (r) => r.prefill[i]);
const times = (a, b) => `${digits(a / b)}x`;
const rounds = (found) => String(Math.min(...Object.values(found).map((all) => all.length)));

/** wllama takes half a second for a token of the 1B shape, so that few must do. @returns {Part} */
function besideWllama(shape, threads) {
  const prompts = [shape === "1b" && threads === 1 ? 48 : 128];
  const decode = shape === "1b" ? 6 : 24;
  return {
    title: "In Chromium beside wllama",
    head: ["shape", "threads", "decode", "wllama", "", "prompt", "prefill", "wllama", "", "rounds"],
    async engines(browser) {
      const [program, gguf] = [await programOf(shape, BASE), await ggufOf(shape)];
      return {
        ours: () => browser.ours(program, threads, { prompts, decode: 24 }),
        wllama: () => browser.wllama(gguf, threads, { prompts, decode }),
      };
    },
    rows(found) {
      const { ours, wllama } = found;
      const cells = (value) => [digits(value(ours)), digits(value(wllama)), times(value(ours), value(wllama))];
      const prefill = cells((all) => prefillOf(all, 0));
      return [[shape, String(threads), ...cells(decodeOf), String(prompts[0]), ...prefill, rounds(found)]];
    },
  };
}

/** @returns {Part} */
function besideNative(threads) {
  const counts = { prompts: [], decode: 32 };
  return {
    title: "Decoding beside native code",
    head: ["1b, 4-bit g32", "threads", "decode", "of native", "first token", "rounds"],
    async engines(browser) {
      const path = await programOf("1b", BASE);
      const common = { path, threads, counts };
      return {
        [NATIVE]: () => inNode({ node: "latest", backend: "native", ...common }),
        [NEWEST]: () => inNode({ node: "latest", ...common }),
        [`${NEWEST}, ${REVECTORIZE}=1`]: () => inNode({ node: "latest", ...common, extra: { [REVECTORIZE]: "1" } }),
        [`WebAssembly, Chromium ${browser.version}`]: () => browser.ours(path, threads, counts),
        "WebAssembly, Node 20": () => inNode({ node: "20", ...common }),
      };
    },
    rows: (found) =>
      Object.entries(found).map(([name, all]) => [
        ...[name, String(threads), digits(decodeOf(all)), times(decodeOf(all), decodeOf(found[NATIVE]))],
        ...[times(of(all, firstToken), 1), String(all.length)],
      ]),
  };
}

/** The first token after load in times of a later one. */
const firstToken = ({ firstTokenMs, decode }) => (firstTokenMs * decode) / 1000;

/** @returns {Part} */
function prompts(threads) {
  const lengths = [128, 512];
  const counts = { prompts: lengths, decode: 8 };
  return {
    title: "Prompts",
    head: ["1b", "threads", ...lengths.map((length) => `prefill ${length}`), "rounds"],
    async engines(browser) {
      const [path, wide] = [await programOf("1b", BASE), await programOf("1b", "4-bit g128")];
      return {
        [`${BASE}, newest Node`]: () => inNode({ node: "latest", path, threads, counts }),
        [`${BASE}, newest Node, ${REVECTORIZE}=1`]: () =>
          inNode({ node: "latest", path, threads, counts, extra: { [REVECTORIZE]: "1" } }),
        [`${BASE}, Chromium ${browser.version}`]: () => browser.ours(path, threads, counts),
        "4-bit g128, newest Node": () => inNode({ node: "latest", path: wide, threads, counts }),
        [`${BASE}, Node 20`]: () => inNode({ node: "20", path, threads, counts }),
      };
    },
    rows: (found) =>
      Object.entries(found).map(([name, all]) => [
        ...[name, String(threads)],
        ...[...lengths.map((_, i) => digits(prefillOf(all, i))), String(all.length)],
      ]),
  };
}

/** @returns {Part} */
function widths() {
  const counts = { prompts: [], decode: 32 };
  return {
    title: "Widths",
    head: ["1b, newest Node, 2 threads", "decode", "", "rounds"],
    async engines() {
      const run = (path) => () => inNode({ node: "latest", path, threads: 2, counts });
      const schemes = [BASE, "4-bit g128", "3-bit g32", "2-bit g32", "8-bit g32"];
      const paths = await Promise.all(schemes.map((scheme) => programOf("1b", scheme)));
      return Object.fromEntries(schemes.map((scheme, i) => [scheme, run(paths[i])]));
    },
    rows: (found) =>
      Object.entries(found).map(([scheme, all]) => [
        ...[scheme, digits(decodeOf(all)), times(decodeOf(all), decodeOf(found[BASE])), String(all.length)],
      ]),
  };
}

/** Tokens of a short question with a chat's template. */
const FIRST_PROMPT = 24;
const firstPrompt = ({ firstPromptMs, laterPromptMs }) => firstPromptMs / laterPromptMs;

/** What is made for a program in the newest Node. */
function codeRows(name, found) {
  const { modules, bytes } = found[0];
  return [
    [`WebAssembly for ${name}`, `${modules} modules, ${(bytes / 1e3).toFixed(1)} kB`],
    ["assembling it", `${digits(of(found, (r) => r.assembleMs))} ms`],
    ["compiling it", `${digits(of(found, (r) => r.compileMs))} ms`],
  ];
}

/** The demo model from its file to its first token in a page, and the code that is made for it. @returns {Part} */
function demo() {
  return {
    title: "Demo model",
    head: ["", "value"],
    async engines(browser) {
      const program = await demoProgram();
      const pageBytes = await buildWeb();
      const prompt = { path: program, threads: 2, counts: { firstPrompt: FIRST_PROMPT } };
      const large = await programOf("1b", BASE);
      const probe = fileURLToPath(new URL("./wasm-module.js", import.meta.url));
      const codeOf = (path) => () =>
        JSON.parse(execFileSync(nodeOfNpm("latest"), [probe, path], { encoding: "utf8" }).trim().split("\n").at(-1));
      return {
        page: () => browser.ours(program, 2, { prompts: [], decode: 48 }),
        prompt: () => browser.ours(program, 2, { firstPrompt: FIRST_PROMPT }),
        "prompt, newest Node": () => inNode({ node: "latest", ...prompt }),
        "prompt, Node 20": () => inNode({ node: "20", ...prompt }),
        code: codeOf(program),
        large: codeOf(large),
        weight: () => ({ pageBytes }),
      };
    },
    rows: ({ page, prompt, code, large, weight, ...others }) => [
      ["load to first token, Chromium", `${digits(of(page, (r) => r.loadMs + r.firstTokenMs))} ms`],
      ["first token in times of a later one", times(of(page, firstToken), 1)],
      [`first prompt of ${FIRST_PROMPT} tokens in times of a later one, Chromium`, times(of(prompt, firstPrompt), 1)],
      ["the same in the newest Node", times(of(others["prompt, newest Node"], firstPrompt), 1)],
      ["the same in Node 20", times(of(others["prompt, Node 20"], firstPrompt), 1)],
      ["decode, Chromium, 2 threads", `${digits(decodeOf(page))} tok/s`],
      ...codeRows("the demo model", code),
      ...codeRows("the 1b shape", large),
      ["JavaScript of the page, gzipped", `${(weight[0].pageBytes / 1e3).toFixed(1)} kB`],
      ["rounds", String(page.length)],
    ],
  };
}

/** Multiply-adds of the linear layers for a token of a prompt, but for the head. @param {keyof typeof shapes} name */
function linearMacs(name) {
  const { layers, hidden, intermediate, heads, kvHeads, headDim } = shapes[name];
  return layers * hidden * ((2 * heads + 2 * kvHeads) * headDim + 3 * intermediate);
}

/** Limits set by relaxed dot products and by reading memory. @returns {Part} */
function peak() {
  const probe = fileURLToPath(new URL("./wasm-peak.js", import.meta.url));
  return {
    title: "Limits of the newest Node",
    head: [
      "threads",
      "dot products, GMAC/s",
      "1b prompts at most, tok/s",
      "reading, GB/s",
      "1b decode at most, tok/s",
      "rounds",
    ],
    async engines() {
      const { size } = statSync(await programOf("1b", BASE));
      const run = (threads) => () => {
        const output = execFileSync(nodeOfNpm("latest"), [probe, String(threads)], { encoding: "utf8" });
        return { ...JSON.parse(output.trim().split("\n").at(-1)), size };
      };
      return { 2: run(2), 1: run(1) };
    },
    rows: (found) =>
      Object.entries(found).map(([threads, all]) => [
        ...[threads, digits(of(all, (r) => r.macs / 1e9)), digits(of(all, (r) => r.macs / linearMacs("1b")))],
        ...[digits(of(all, (r) => r.read / 1e9)), digits(of(all, (r) => r.read / r.size)), String(all.length)],
      ]),
  };
}

/** @type {Readonly<Record<string, Part>>} */
export const parts = {
  "wllama-1b-2": besideWllama("1b", 2),
  "wllama-1b-1": besideWllama("1b", 1),
  "wllama-110m-2": besideWllama("110m", 2),
  "wllama-110m-1": besideWllama("110m", 1),
  "native-2": besideNative(2),
  "native-1": besideNative(1),
  "prompts-2": prompts(2),
  "prompts-1": prompts(1),
  widths: widths(),
  peak: peak(),
  demo: demo(),
};
