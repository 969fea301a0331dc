/**
 * Makes kernels of WebAssembly code. In a program, calls are planned on the program's own memory; a single call (eager
 * execution, tests) copies its arrays to a memory for such calls and copies the results back.
 */
import { bytesOf } from "../../tensor.ts";
import type { Kernel } from "../contract.ts";
import { runsOf } from "../sequence-table.ts";
import { WasmEngine } from "./engine/engine.ts";
import type { Placement, WasmStep } from "./kernel-code.ts";

/** A WebAssembly kernel without the properties that all of them share. */
export interface WasmRow<A> extends Omit<Kernel<A>, "target" | "bind" | "encode"> {
  /** Makes the call's phases and arguments for arrays at given addresses. */
  step(args: A, place: Placement): WasmStep;
}

/** Properties that kernels without packed weights share. */
export const plainRow = { layouts: null, bits: null, needs: ["simd128"], mStep: 1, nStep: 1 } as const;

/** Makes a kernel that can run by itself, or be encoded for a plan of many calls. */
/* @__NO_SIDE_EFFECTS__ */
export function wasmKernel<A>({ step, ...row }: WasmRow<A>): Kernel<A> {
  return {
    ...row,
    target: "wasm",
    bind: (args, scratch, threads) => () => runAlone((place) => step(args, place), scratch.length, threads),
    encode: (args, scratch) => ({ target: "wasm", scratch, prepare: (place) => step(args, place) }),
  };
}

let single: WasmEngine | undefined;
const SINGLE_BYTES = 1 << 20;

/** An engine on the caller's thread, for single calls. */
function singleEngine(byteLength: number): WasmEngine {
  if (single && single.byteLength >= byteLength) return single;
  void single?.dispose();
  single = new WasmEngine({ bytes: Math.max(SINGLE_BYTES, 2 * byteLength), threads: 1, isShared: false });
  return single;
}

type Address = Placement["read"];

/** Page table for the pages that runs read and write, from functions that assign a page an address. */
export const pagesBy =
  (read: Address, write: Address): Placement["pages"] =>
  ({ page, pages, pagesMax, pagePositions, window, keepsFirst }, table, rows) => {
    const places = new Map<string, number>();
    const buffers = new Map<ArrayBufferLike, number>();
    const addresses = new BigUint64Array(pages.length);
    for (const { slot, position, rows: count } of runsOf(table, rows)) {
      const first = window > 0 ? Math.floor(Math.max(0, position - window + 1) / pagePositions) : 0;
      for (let i = keepsFirst ? 0 : first; i * pagePositions < position + count; i++) {
        if (i > 0 && i < first) continue;
        const bytes = page(slot, i);
        const buffer = buffers.get(bytes.buffer) ?? buffers.size;
        buffers.set(bytes.buffer, buffer);
        const key = `${buffer} ${bytes.byteOffset}`;
        const place = places.get(key) ?? write(bytes);
        places.set(key, place);
        addresses[slot * pagesMax + i] = BigInt(place);
      }
    }
    return read(addresses);
  };

/** State addresses for the states that runs read and write, from functions that assign a state an address. */
export const statesBy =
  (read: Address, write: Address): Placement["states"] =>
  (table, rows) => {
    const [now, next] = [table.states, table.nextStates].map(({ length }) => new BigUint64Array(length));
    for (const { slot } of runsOf(table, rows)) {
      const state = table.state(slot);
      now![slot] = BigInt(read(state.now));
      next![slot] = BigInt(write(state.next));
    }
    return { now: read(now!), next: read(next!) };
  };

/** Placement of calls that read no sequences. */
export const noSequences: Pick<Placement, "pages" | "states"> = {
  pages: () => 0,
  states: () => ({ now: 0, next: 0 }),
};

/** Runs a call that was prepared for `threads` threads on the caller's thread. */
function runAlone(prepare: (place: Placement) => WasmStep, scratchBytes: number, threads: number): void {
  const views: ArrayBufferView[] = [];
  const count = (view: ArrayBufferView) => views.push(view);
  const sequencesBy = (read: Address, write: Address) => ({
    pages: pagesBy(read, write),
    states: statesBy(read, write),
  });
  prepare({ read: count, write: count, ...sequencesBy(count, count), scratch: 0, threads });
  const needed = views.reduce((sum, { byteLength }) => sum + byteLength + 64, scratchBytes + (1 << 16));
  const engine = singleEngine(needed);
  const placed: { readonly view: ArrayBufferView; readonly bytes: Uint8Array; readonly isWritten: boolean }[] = [];
  const put = (isWritten: boolean) => (view: ArrayBufferView) => {
    const bytes = engine.allocate(view.byteLength);
    bytes.set(bytesOf(view));
    placed.push({ view, bytes, isWritten });
    return bytes.byteOffset;
  };
  const [read, write] = [put(false), put(true)];
  const scratch = engine.allocate(scratchBytes);
  engine.runNow(prepare({ read, write, ...sequencesBy(read, write), scratch: scratch.byteOffset, threads }));
  for (const { view, bytes, isWritten } of placed) {
    if (isWritten) bytesOf(view).set(bytes);
    engine.free(bytes);
  }
  engine.free(scratch);
}
