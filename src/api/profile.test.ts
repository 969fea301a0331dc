import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";
import { int8DynamicActivationIntxWeight, sharedEmbedding } from "../quantize/config.ts";
import { Profile } from "../runtime/calls/profile.ts";
import { exportProgram } from "./export-program.ts";
import { loadCompiled } from "./load-compiled.ts";
import { loadProgram } from "./load-program.ts";

const folder = await temporaryFolder();
const program = join(folder, "tiny.pte");
await writeTinyCheckpoint(join(folder, "tiny"));
const configs = [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 4 })];
const model = await loadCheckpoint(join(folder, "tiny"));
quantize(model, configs);
await exportProgram(model, program);
await model.close();

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus = [
  ["this CPU", hostCpu()],
  ["WebAssembly", wasmCpu],
  ["the reference", scalarCpu],
] as const;

it.each(cpus)("every call of every token is counted on %s", async (_, cpu) => {
  const profile = new Profile({ trace: true });
  const model = await loadCheckpoint(join(folder, "tiny"));
  quantize(model, configs);
  const llm = await loadCompiled(model, { cpu, profile, threads: 1 });
  await model.close();
  profile.reset();
  const decoder = llm.createDecoder();
  const ids = [5, 6, 7, 8, 9];
  await decoder.prefill(ids);
  for (let i = 0; i < 10; i++) await decoder.step(i);
  const entries = profile.entries();
  const attention = entries.filter(({ operator }) => operator === "lowbit::rope_update_and_attend.out");
  const calls = attention.reduce((sum, entry) => sum + entry.calls, 0);
  expect(calls).toBe(2 * 11);
  for (const { kernel, milliseconds, bytes } of entries) {
    expect(kernel).toMatch(cpu === wasmCpu ? /_(wasm_|reference)/ : cpu === scalarCpu ? /_reference$/ : /_/);
    expect(milliseconds).toBeGreaterThanOrEqual(0);
    expect(bytes).toBeGreaterThan(0);
  }
  const inCalls = entries.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  expect(inCalls).toBeGreaterThan(0);
  expect(inCalls).toBeLessThanOrEqual(profile.milliseconds);
  // Keys, values, queries, outputs, the angles of a position, the handle of the sequences, and of the two caches of 2 heads of 8 the positions so far: 6 to 15.
  const decode = attention.find(({ shapes }) => shapes.startsWith("1x1x"))!;
  const row = 4 * 2 * 8;
  expect(decode.bytes).toBe(2 * (10 * (2 * row + 2 * 2 * row + 2 * 4 * 4 + 4) + 2 * row * ((6 + 15) * 5)));
  const events = profile.trace().traceEvents.filter(({ cat }) => cat === "operator");
  expect(events.length).toBe(entries.reduce((sum, entry) => sum + entry.calls, 0));
  const memory = profile.memory.get("forward")!;
  expect(memory.peakBytes).toBeLessThanOrEqual(memory.scratchBytes);
  expect(memory.peakBytes).toBeGreaterThan(0.5 * memory.scratchBytes);
  await decoder.dispose();
  await llm.dispose();
});

it("takes nothing when nobody asks", async () => {
  const llm = await loadProgram(program);
  expect(llm.program.profile).toBeUndefined();
  await llm.dispose();
});

it("is shown by lowbit run, and written as a trace", async () => {
  const trace = join(folder, "trace.json");
  const argv = ["run", program, "The quick", "-n", "4", "--ignore-eos", "--trace", trace];
  const plain = await lowbit([...argv, "--profile"]);
  expect(plain).toMatchObject({ code: 0 });
  expect(plain.stderr).toMatch(/ms +% +calls +MB +GB\/s +operator +kernel +shapes\n/);
  expect(plain.stderr).toMatch(/lowbit::linear_8bit_block_act\.out +linear_a8b32_w\S+ +1x1x32 → 1x1x\d+/);
  expect(plain.stderr).toMatch(/memory of forward: scratch .* of which values in use take \d+ % at most/);
  const { traceEvents } = JSON.parse(readFileSync(trace, "utf8")) as { traceEvents: Record<string, unknown>[] };
  for (const { ph, name, pid, tid, ts, dur } of traceEvents) {
    expect([typeof name, typeof pid, typeof tid]).toEqual(["string", "number", "number"]);
    if (ph !== "M") expect(ts).toBeGreaterThanOrEqual(0);
    if (ph === "X") expect(dur).toBeGreaterThanOrEqual(0);
  }
  expect(new Set(traceEvents.map(({ ph }) => ph))).toEqual(new Set(["M", "X", "C"]));
  const { stdout } = await lowbit([...argv, "--profile", "--json"]);
  const { profile } = JSON.parse(stdout) as { profile: { operators: { calls: number; share: number }[] } };
  expect(profile.operators.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 6);
  const { code, stderr } = await lowbit([...argv.slice(0, -1), join(folder, "none", "trace.json")]);
  expect(code).not.toBe(0);
  expect(stderr).toContain("trace.json: cannot be written");
});
