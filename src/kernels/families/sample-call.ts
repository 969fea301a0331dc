/** A sample call of a WebAssembly kernel, with the reference kernel's results. */
import type { QuantizedWeights } from "../../quantized.ts";
import { bytesOf } from "../../tensor.ts";
import { floats } from "../cases.ts";
import type { Kernel } from "../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../layout/packed.ts";
import type { SequenceTable } from "../sequence-table.ts";
import { noSequences } from "../wasm/kernel.ts";
import type { Placement, WasmStep } from "../wasm/kernel-code.ts";

type Results = Float32Array | BigInt64Array | Int32Array | Uint8Array;

export interface SampleCall {
  readonly kernel: string;
  readonly needs: readonly string[];
  /** Bits and rows, for kernels with several calls. */
  readonly what: string;
  /** Makes the arguments, always the same, and binds the kernel to them. */
  bind(): { run(): void; readonly results: Results };
  expected(): Results;
  scratchBytes(threads: number): number;
  /** The call's step for arrays at given addresses, and the result array among them. */
  step(place?: Placement): { step: WasmStep; results: Results };
}

/** Tolerance of float32 sums, relative to the largest result. */
const TOLERANCE = 1e-5;

/** Compares a call's results with the reference; returns the problem, null when there is none. */
export function problemOf(call: SampleCall, results: Results): string | null {
  const expected = Array.from(call.expected(), Number);
  const found = Array.from(results, Number);
  const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const wrong = found.findIndex((value, i) => !(Math.abs(value - expected[i]!) <= TOLERANCE * largest));
  if (wrong < 0) return null;
  const what = call.what === "" ? call.kernel : `${call.kernel} (${call.what})`;
  return `${what} gives ${found[wrong]} instead of ${expected[wrong]}`;
}

/** Placement at address 0, for what does not depend on addresses. */
const nowhere: Placement = { read: () => 0, write: () => 0, ...noSequences, scratch: 0, threads: 1 };

/** A sample call of a kernel; `make` makes new arguments for each run. */
export function callOf<A>(
  kernel: Kernel<A>,
  reference: Kernel<A>,
  make: () => A,
  resultsOf: (args: A) => Results,
  what = "",
): SampleCall {
  const bound = (row: Kernel<A>) => {
    const args = make();
    return { run: row.bind(args, scratchOf(row, args), 1), results: resultsOf(args) };
  };
  return {
    kernel: kernel.name,
    needs: kernel.needs,
    what,
    bind: () => bound(kernel),
    expected: () => {
      const { run, results } = bound(reference);
      run();
      return results;
    },
    scratchBytes: (threads) => kernel.scratchBytes?.(make(), threads) ?? 0,
    step: (place = nowhere) => {
      const args = make();
      const call = kernel.encode!(args, new Uint8Array(0));
      if (call.target !== "wasm") throw new TypeError(`${kernel.name} is no WebAssembly row`);
      return { step: call.prepare(place), results: resultsOf(args) };
    },
  };
}

function scratchOf<A>(kernel: Kernel<A>, args: A): Uint8Array {
  return new Uint8Array(kernel.scratchBytes?.(args, 1) ?? 0);
}

/** Sample weights [n, k] in groups of 32. */
export function logicalWeights(n: number, k: number, bits: number): QuantizedWeights {
  const levels = 2 ** bits;
  return {
    ...{ n, k, bits, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f16", zeros: null, levels: null },
    qvals: Int8Array.from({ length: n * k }, (_, i) => ((i * 7919) % levels) - levels / 2),
    scales: Float32Array.from({ length: (n * k) / 32 }, (_, i) => 2 ** -7 * (1 + (i % 5))),
  };
}

/** Sample weights, packed in a layout. */
export function packed(n: number, k: number, bits: number, layout: string) {
  const logical = logicalWeights(n, k, bits);
  return openPacked(packWeights(logical, null, layoutNamed(layout)), logical);
}

/** A table with one run of rows from position 20 on, with a state. */
export function tableOfRun(rows: number, stateElements: number): SequenceTable {
  const state = { now: bytesOf(floats(stateElements, 8)), next: new Uint8Array(4 * stateElements) };
  return {
    ...{ handle: new Int32Array(1), runs: Int32Array.of(1, 0, rows, 20, 0), runsMax: 1, slots: 1 },
    ...{ states: new BigUint64Array(1), nextStates: new BigUint64Array(1) },
    state: () => state,
    layerPages: () => undefined,
    statePart: () => undefined,
  };
}
