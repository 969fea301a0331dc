/**
 * The demo model with steps of many numbers of rows, and of rows whose logits are wanted, in turn in one session, against
 * calls that are resolved for each of them by itself.
 */
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import {
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { hostCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { readyMethod } from "../src/runtime/method.ts";
import { type LoadedProgram, storeOf } from "../src/runtime/program.ts";
import { RunList } from "../src/runtime/run-list.ts";
import type { Tensor } from "../src/tensor.ts";

const demo = fileURLToPath(new URL("../models/shakespeare", import.meta.url));
const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus = [...(wasmCpu.features.size > 0 ? [wasmCpu] : []), ...(hasNative() ? [hostCpu()] : [])];

const ids = (values: readonly number[], shape: readonly number[]): Tensor => ({
  dtype: "i64",
  shape,
  data: BigInt64Array.from(values, BigInt),
});

/** A step of `rows` tokens from position 0 on, with logits of the last `wanted`. */
function inputsOf(rows: number, wanted: number): Tensor[] {
  const places = Array.from({ length: rows }, (_, i) => i);
  return [
    ids(
      places.map((i) => (31 * i + 7 * rows) % 200),
      [1, rows],
    ),
    ids(places, [rows]),
    ids(places.slice(rows - wanted), [wanted]),
  ];
}

/** Runs `work` while the program's table tells of one sequence with as many new rows. */
async function stepOf<R>(program: LoadedProgram, rows: number, work: () => Promise<R>): Promise<R> {
  const store = storeOf(program)!;
  const sequence = store.open();
  expect(sequence.reserve(rows)).toBe(true);
  const result = await store.step([{ sequence, tokens: rows }], work);
  sequence.dispose();
  return result;
}

async function runAlone(program: LoadedProgram, inputs: readonly Tensor[]): Promise<Float32Array> {
  const { sequences, constants, memory } = program;
  const method = program.method("forward");
  const places = { scratch: program.scratchOf(method), state: memory.allocate(0), sequences, constants };
  const sizes = inputs.map(({ shape }) => shape);
  const ready = readyMethod(program.callsOf(method), sizes, places, program);
  for (const [i, { data }] of ready.inputs.entries()) (data as BigInt64Array).set(inputs[i]!.data as BigInt64Array);
  const list = new RunList(ready.calls, program);
  await list.run(undefined);
  list.release();
  return (ready.outputs[0]!.data as Float32Array).slice();
}

const sizes = [
  ...[7, 40, 2, 33, 5, 100, 8, 3, 41, 1, 65, 9, 64, 6, 17].map((rows) => [rows, 1] as const),
  ...([
    [7, 7],
    [20, 3],
    [21, 3],
    [5, 2],
    [20, 19],
    [2, 2],
    [64, 64],
    [90, 64],
    [90, 2],
    [33, 33],
    [3, 2],
    [8, 8],
  ] as const),
];

describe.each(cpus.map((cpu) => [cpu === wasmCpu ? "WebAssembly" : "native kernels", cpu] as const))(
  "on %s",
  (_, cpu) => {
    it.each([1, 2])("logits are those of each size alone, %i threads", async (threads) => {
      const checkpoint = await loadCheckpoint(demo);
      quantize(checkpoint, [
        int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 }),
        sharedEmbedding({ bits: 4, groupSize: 32 }),
      ]);
      const { program } = await loadCompiled(checkpoint, { cpu, threads });
      const session = program.createSession();
      for (const [rows, wanted] of sizes) {
        const inputs = inputsOf(rows, wanted);
        const [logits] = await stepOf(program, rows, () => session.run("forward", inputs));
        const expected = await stepOf(program, rows, () => runAlone(program, inputs));
        expect(logits!.data, `${rows} rows, logits of ${wanted}`).toEqual(expected);
      }
      await program.dispose();
    });
  },
);
