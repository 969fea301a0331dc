/**
 * V8's experimental pairing of 128-bit operations to 256-bit ones, which makes prompts faster in Node and which no page
 * can turn on. LOWBIT_WASM_REVECTORIZE=1 asks for it; it stays on only if kernels compiled with it compute what the
 * reference kernels do.
 */
import { logInfo } from "../../log.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import type { PackedLinearArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../layout/packed.ts";
import { linearA8Reference } from "../reference/linear.ts";
import { wasmFeatures } from "./features.ts";
import { linearA8Wasm } from "./linear.ts";

const FLAG = "experimental-wasm-revectorize";
/** Kernels run until V8 has had time to replace the code that it makes first, in its own threads. */
const RUN_MS = 40;
const COMPILE_MS = 400;
/** Roundings of float32 sums, as a share of the largest result. */
const TOLERANCE = 1e-5;
const SHAPE = { n: 64, k: 512, groupSize: 32 } as const;
const WIDTHS = [2, 3, 4, 8];
/** One row of activations, and more than the kernels of many take at a time. */
const ROWS = [1, 7];

let isOn: boolean | undefined;

/** Whether kernels are compiled so; turns it on the first time, where it is asked for. */
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
  process.emitWarning(`LOWBIT_WASM_REVECTORIZE: not turned on: ${problem}`);
}

interface Case {
  readonly kernel: Kernel<PackedLinearArgs>;
  readonly args: PackedLinearArgs;
  readonly expected: Float32Array;
  run(): void;
}

/** What is wrong with code compiled this way; null when nothing is. */
export function findProblem(kernels: readonly Kernel<PackedLinearArgs>[] = linearA8Wasm): string | null {
  const features = new Set(wasmFeatures());
  const isUsable = ({ needs, nStep }: Kernel<PackedLinearArgs>) =>
    nStep === 16 && needs.every((need) => features.has(need));
  // Best first: those that need less than the best do not run here.
  const best = kernels.find(isUsable)?.needs.join();
  const usable = kernels.filter((kernel) => isUsable(kernel) && kernel.needs.join() === best);
  const cases = usable.flatMap((kernel) => WIDTHS.flatMap((bits) => ROWS.map((m) => makeCase(kernel, bits, m))));
  for (const { run } of cases) for (const end = performance.now() + RUN_MS; performance.now() < end; ) run();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, COMPILE_MS);
  for (const { kernel, args, expected, run } of cases) {
    args.y.fill(0);
    run();
    const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const wrong = args.y.findIndex((value, i) => !(Math.abs(value - expected[i]!) <= TOLERANCE * largest));
    if (wrong >= 0)
      return `${kernel.name} with ${args.weights.spec.bits} bits gives ${args.y[wrong]} instead of ${expected[wrong]}`;
  }
  return null;
}

function makeCase(kernel: Kernel<PackedLinearArgs>, bits: number, m: number): Case {
  const { n, k, groupSize } = SHAPE;
  const levels = 2 ** bits;
  const logical: QuantizedWeights = {
    ...{ n, k, bits, groupSize, hasZeros: false, hasLevels: false, scaleDType: "f16", zeros: null, levels: null },
    qvals: Int8Array.from({ length: n * k }, (_, i) => ((i * 7919) % levels) - levels / 2),
    scales: Float32Array.from({ length: (n * k) / groupSize }, (_, i) => 2 ** -7 * (1 + (i % 5))),
  };
  const weights = openPacked(packWeights(logical, null, layoutNamed("panel16")), SHAPE);
  const x = Float32Array.from({ length: m * k }, (_, i) => Math.sin(i * i));
  const expected = new Float32Array(m * n);
  const reference = { m, x, weights, y: expected };
  linearA8Reference.bind(reference, new Uint8Array(linearA8Reference.scratchBytes?.(reference, 1) ?? 0), 1)();
  const args = { ...reference, y: new Float32Array(m * n) };
  const run = kernel.bind(args, new Uint8Array(kernel.scratchBytes?.(args, 1) ?? 0), 1);
  return { kernel, args, expected, run };
}
