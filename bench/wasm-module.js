/** Prints how many bytes of WebAssembly the program of the arguments has made for it, and how long that and compiling takes. */
process.env.LOWBIT_BACKEND = "wasm";
const { loadProgram } = await import("../dist/index.js");
const Module = WebAssembly.Module;
let bytes = 0;
let modules = 0;
let milliseconds = 0;
WebAssembly.Module = class extends Module {
  constructor(source) {
    const start = performance.now();
    super(source);
    milliseconds += performance.now() - start;
    bytes += source.byteLength;
    modules++;
  }
};
const model = await loadProgram(process.argv[2], { threads: 1 });
console.log(JSON.stringify({ modules, bytes, milliseconds }));
await model.dispose();
