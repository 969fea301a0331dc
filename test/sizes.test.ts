/** The demo model at prompts of many lengths in turn, in one session, against calls resolved for each length by itself. */
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
import type { LoadedProgram } from "../src/runtime/program.ts";
import { RunList } from "../src/runtime/run-list.ts";
import type { Tensor } from "../src/tensor.ts";

const demo = fileURLToPath(new URL("../models/shakespeare", import.meta.url));
const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus = [...(wasmCpu.features.size > 0 ? [wasmCpu] : []), ...(hasNative() ? [hostCpu()] : [])];

/** Logits of a prompt from position 0 on, by calls that are resolved for its length alone. */
async function alone(program: LoadedProgram, inputs: readonly Tensor[]): Promise<Float32Array> {
  const method = program.method("forward");
  const state = program.memory.allocate(program.stateBytes);
  const memory = { scratch: program.scratchOf(method), state, sequences: null, constants: program.constants };
  const sizes = inputs.map(({ shape }) => shape);
  const ready = readyMethod(program.callsOf(method), sizes, memory, program);
  for (const [i, { data }] of ready.inputs.entries()) (data as BigInt64Array).set(inputs[i]!.data as BigInt64Array);
  const list = new RunList(ready.calls, program);
  await list.run(undefined);
  list.release();
  program.memory.free(state);
  return (ready.outputs[0]!.data as Float32Array).slice();
}

describe.each(cpus.map((cpu) => [cpu === wasmCpu ? "WebAssembly" : "native kernels", cpu] as const))(
  "on %s",
  (_, cpu) => {
    it.each([1, 2])("logits are those of each length alone, %i threads", async (threads) => {
      const checkpoint = await loadCheckpoint(demo);
      quantize(checkpoint, [
        int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 }),
        sharedEmbedding({ bits: 4, groupSize: 32 }),
      ]);
      const { program } = await loadCompiled(checkpoint, { cpu, threads });
      const session = program.createSession();
      const position: Tensor = { dtype: "i64", shape: [1], data: new BigInt64Array(1) };
      for (const length of [7, 40, 2, 33, 5, 100, 8, 3, 41, 1, 65, 9, 64, 6, 17]) {
        const data = BigInt64Array.from({ length }, (_, i) => BigInt((31 * i + 7 * length) % 200));
        const inputs: Tensor[] = [{ dtype: "i64", shape: [1, length], data }, position];
        const [logits] = await session.run("forward", inputs);
        expect(logits!.data, `${length} tokens`).toEqual(await alone(program, inputs));
      }
      await program.dispose();
    });
  },
);
