/**
 * V8's experimental pairing of 128-bit operations into 256-bit ones, which makes prefill faster in Node and which pages cannot
 * turn on. LOWBIT_WASM_REVECTORIZE=1 requests it; it stays on only if kernels compiled with it match the reference kernels.
 */
import { logInfo, warn } from "../../log.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import { problemOf, type SampleCall } from "../families/sample-call.ts";
import { sampleCalls } from "../families/sample-calls.ts";
import { wasmFeatures } from "./features.ts";

const FLAG = "experimental-wasm-revectorize";
/**
 * Milliseconds of running each kernel, and of waiting for V8 to replace its first code by optimized code, made in other
 * threads.
 */
const RUN_MS = 20;
const COMPILE_MS = 400;
let isOn: boolean | undefined;

/** Whether revectorization is on; the first call turns it on if requested. */
export function revectorize(): boolean {
  isOn ??= globalThis.process?.env.LOWBIT_WASM_REVECTORIZE === "1" && turnOn();
  return isOn;
}

function turnOn(): boolean {
  const v8 = nodeBuiltin<{ setFlagsFromString(flag: string): void }>("node:v8");
  const files = nodeBuiltin<{ execFileSync(file: string, args: string[]): Uint8Array }>("node:child_process");
  const options = v8 && files?.execFileSync(process.execPath, ["--v8-options"]);
  if (!v8 || !new TextDecoder().decode(options).includes(`--${FLAG} `)) {
    refuse("this engine has no such option");
    return false;
  }
  v8.setFlagsFromString(`--${FLAG}`);
  const problem = findProblem();
  if (problem === null) {
    logInfo(() => "WebAssembly is compiled with 256-bit vectors; its kernels compute what the reference does");
    return true;
  }
  v8.setFlagsFromString(`--no-${FLAG}`);
  refuse(problem);
  return false;
}

function refuse(problem: string): void {
  warn(`LOWBIT_WASM_REVECTORIZE: not turned on: ${problem}`);
}

/** Compares kernels compiled this way with the reference; returns a problem, null when there is none. */
export function findProblem(calls: readonly SampleCall[] = sampleCalls()): string | null {
  const usable = bestOf(calls);
  for (const { run } of usable.map((call) => call.bind()))
    for (const end = performance.now() + RUN_MS; performance.now() < end; ) run();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, COMPILE_MS);
  for (const call of usable) {
    const { run, results } = call.bind();
    run();
    const problem = problemOf(call, results);
    if (problem !== null) return problem;
  }
  return null;
}

/** Calls of kernels that run here; of kernels that differ only in their features, the first. */
function bestOf(calls: readonly SampleCall[]): SampleCall[] {
  const features = new Set<string>(wasmFeatures());
  const best = new Map<string, string>();
  return calls.filter(({ kernel, needs }) => {
    if (!needs.every((need) => features.has(need))) return false;
    const place = kernel.slice(0, kernel.lastIndexOf("_"));
    if (!best.has(place)) best.set(place, kernel);
    return best.get(place) === kernel;
  });
}
