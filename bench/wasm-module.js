/** Prints the WebAssembly that is made for a program, given as argument, and the time to assemble and compile it. */
process.env.LOWBIT_BACKEND = "wasm";
const { loadProgram } = await import("../dist/index.js");
const { CodeTable } = await import("../dist/kernels/wasm/engine/code-table.js");

const made = { modules: 0, bytes: 0, assembleMs: 0, compileMs: 0 };
/** Whether a module is one of the program's: the others are the probes of what the engine has. */
let isOfProgram = false;

const Compiler = WebAssembly.Module;
WebAssembly.Module = class extends Compiler {
  constructor(source) {
    const start = performance.now();
    super(source);
    if (!isOfProgram) return;
    made.compileMs += performance.now() - start;
    made.bytes += source.byteLength;
    made.modules++;
  }
};
for (const name of ["runner", "extend"]) {
  const method = CodeTable.prototype[name];
  CodeTable.prototype[name] = function (...args) {
    const start = performance.now();
    const compiled = made.compileMs;
    isOfProgram = true;
    const result = method.apply(this, args);
    isOfProgram = false;
    made.assembleMs += performance.now() - start - (made.compileMs - compiled);
    return result;
  };
}
const model = await loadProgram(process.argv[2], { threads: 1 });
console.log(JSON.stringify(made));
await model.dispose();
