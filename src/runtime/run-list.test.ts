/** Lists of bound calls on plans of the test's own: what an abort leaves behind. */
import { expect, it } from "vitest";
import type { CallPlan, KernelMemory, NativeCall } from "../kernels/contract.ts";
import { processMemory } from "../kernels/memory.ts";
import type { BoundCall } from "../ops/operator.ts";
import { RunList } from "./run-list.ts";

const encoded: NativeCall = { target: "native", kernel: 0, scalars: [], buffers: [] };
const call = { scratchBytes: () => 0, encode: () => encoded } as unknown as BoundCall;

it("runs again after an abort, which the next run does not see", async () => {
  const controller = new AbortController();
  const seen: number[] = [];
  const plan: CallPlan = {
    async run(abort) {
      seen.push(abort[0]!);
      if (seen.length === 1) controller.abort(new Error("enough"));
      seen.push(abort[0]!);
    },
    dispose() {},
  };
  const memory: KernelMemory = { ...processMemory(), planCalls: () => plan };
  const list = new RunList([call, call], { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  await expect(list.run(controller.signal)).rejects.toThrow("enough");
  await list.run(undefined);
  expect(seen).toEqual([0, 1, 0, 0]);
});
