/** Warming up leaves a program as it was loaded, however many of its runs there is time for. No times are checked. */
import { describe, expect, test, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";

const folder = await temporaryFolder();
await writeTinyCheckpoint(folder);

describe("warmUp", () => {
  test("finds no prompt of its own in the store, and leaves none there", async () => {
    const checkpoint = await loadCheckpoint(folder);
    const cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
    const model = await loadCompiled(checkpoint, { cpu, threads: 1 });
    await checkpoint.close();
    // The clock stands still, so that all runs are done.
    const clock = vi.spyOn(performance, "now").mockReturnValue(0);
    await model.warmUp().finally(() => clock.mockRestore());
    const { reusedTokens, idlePages } = model.program.sequenceStatistics!;
    expect({ reusedTokens, idlePages }).toEqual({ reusedTokens: 0, idlePages: 0 });
    await model.dispose();
  });
});
