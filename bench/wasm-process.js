/** Measures the program of the argument, a request of wasm-parts.js, and prints the result. */
import { loadProgram } from "../dist/index.js";
import { measure, measureFirstPrompt } from "./wasm-measure.js";

const { path, threads, counts } = JSON.parse(process.argv[2]);
const load = () => loadProgram(path, { threads });
const found = counts.firstPrompt ? measureFirstPrompt(load, counts.firstPrompt) : measure(load, counts);
console.log(JSON.stringify(await found));
