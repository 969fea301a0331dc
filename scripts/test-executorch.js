/**
 * Checks our `.pte` files with ExecuTorch itself: in a throw-away Python environment, its Program.verify must accept
 * them and see the methods, operators and tensor shapes that `lowbit inspect` prints. Needs Python 3.11 and PyPI.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const EXECUTORCH = "executorch==1.5.1";
const TORCH = "torch==2.13.0";
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(root, "build", "executorch");
const python = join(folder, "venv", "bin", "python");
const lowbit = join(root, "dist", "cli", "main.js");

/** Runs a program and returns what it prints. @param {string} program @param {string[]} args */
function run(program, args) {
  return execFileSync(program, args, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] });
}

mkdirSync(folder, { recursive: true });
if (!existsSync(python)) {
  console.log(`installing ${EXECUTORCH} and ${TORCH} (large)`);
  run("python3", ["-m", "venv", join(folder, "venv")]);
  run(python, ["-m", "pip", "install", "--quiet", EXECUTORCH, TORCH]);
}

const exports = {
  float: [],
  "8da4w": ["--qmode", "8da4w"],
  "tied-4bit": ["--qmode", "8da4w", "--shared-embedding"],
  "embedding-4bit": ["--qmode", "8da2w", "--embedding", "4,32"],
  universal: ["--qmode", "8da3w", "--layout", "torchao_universal"],
};
const files = Object.entries(exports).map(([name, options]) => {
  const file = join(folder, `${name}.pte`);
  run(process.execPath, [lowbit, "quantize", join(root, "models", "shakespeare"), ...options, "-o", file]);
  return file;
});

let failures = 0;
/** @param {string} file @param {string} what @param {unknown} theirs @param {unknown} ours */
function compare(file, what, theirs, ours) {
  if (JSON.stringify(theirs) === JSON.stringify(ours)) return;
  failures++;
  console.error(`${file}: ${what}: ExecuTorch sees ${JSON.stringify(theirs)}, lowbit ${JSON.stringify(ours)}`);
}

const scalarTypes = { LONG: "i64", FLOAT: "f32" };
const seen = JSON.parse(run(python, [join(root, "scripts", "executorch-verify.py"), ...files]));
for (const { file, verified, methods } of seen) {
  compare(file, "verified", verified, true);
  const ours = JSON.parse(run(process.execPath, [lowbit, "inspect", file, "--json"]));
  const forward = methods.find(({ name }) => name === "forward");
  const shapes = (list) => list.map(({ sizes, dtype }) => ({ sizes, dtype: scalarTypes[dtype] ?? dtype }));
  const method = ours.methods.find(({ name }) => name === "forward");
  compare(
    file,
    "methods",
    methods.map(({ name }) => name).sort(),
    [...ours.methods.map(({ name }) => name), ...Object.keys(ours.metadata)].sort(),
  );
  compare(file, "inputs", shapes(forward.inputs), shapes(method.inputs));
  compare(file, "outputs", shapes(forward.outputs), shapes(method.outputs));
  compare(file, "operators", [...forward.operators].sort(), method.operators.map(({ name }) => name).sort());
  console.log(`${file}: accepted, ${methods.length} methods, ${forward.operators.length} operators`);
}
console.log(`${files.length} passed, ${failures} failed`);
process.exit(failures > 0 ? 1 : 0);
