/** Measures the program of the argument, a request of wasm-parts.js, and prints the result. */
import { loadProgram } from "../dist/index.js";
import { measure } from "./wasm-measure.js";

const { path, threads, counts } = JSON.parse(process.argv[2]);
console.log(JSON.stringify(await measure(() => loadProgram(path, { threads }), counts)));
