/** Every row in a plan of an engine: on two threads, and with 64-bit addresses, beside the reference. */
import { describe, expect, it } from "vitest";
import { bytesOf } from "../../tensor.ts";
import { WasmEngine } from "../wasm/engine/engine.ts";
import { hasWideMemory } from "../wasm/engine/engine-memory.ts";
import { wasmFeatures } from "../wasm/features.ts";
import { pagesBy, statesBy } from "../wasm/kernel.ts";
import { problemOf, type SampleCall } from "./sample-call.ts";
import { sampleCalls } from "./sample-calls.ts";

const features = new Set<string>(wasmFeatures());
const usable = sampleCalls().filter(({ needs }) => needs.every((need) => features.has(need)));
const THREADS = 2;

async function resultsOf(call: SampleCall, engine: WasmEngine) {
  const placed = new Map<ArrayBufferView, Uint8Array>();
  const put = (view: ArrayBufferView) => {
    const bytes = engine.allocate(view.byteLength);
    bytes.set(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    placed.set(view, bytes);
    return bytes.byteOffset;
  };
  const scratch = engine.allocate(call.scratchBytes(engine.threads));
  const scratchAt = scratch.byteOffset;
  const place = {
    read: put,
    write: put,
    pages: pagesBy(put, put),
    states: statesBy(put, put),
    scratch: scratchAt,
    threads: engine.threads,
  };
  const { step, results } = call.step(place);
  const plan = engine.planCalls([{ target: "wasm", scratch, prepare: () => step }]);
  await plan.run(engine.abort);
  bytesOf(results).set(placed.get(results)!);
  return results;
}

describe.skipIf(usable.length === 0).each([false, true])("64-bit addresses: %s", (isWide) => {
  it.skipIf(isWide && !hasWideMemory())(`all rows on ${THREADS} threads give what the reference does`, async () => {
    const engine = new WasmEngine({ bytes: 1 << 24, threads: THREADS, isWide });
    expect(engine.threads).toBe(THREADS);
    for (const call of usable) expect(problemOf(call, await resultsOf(call, engine))).toBeNull();
    await engine.dispose();
  });
});
