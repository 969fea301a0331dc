/**
 * Kernel rows of WebAssembly. In a program, calls go into plans on the program's own memory; alone (eager execution,
 * tests) a call takes its arrays into a memory for such calls and brings the results back.
 */
import { bytesOf } from "../../tensor.ts";
import type { Kernel } from "../contract.ts";
import { WasmEngine } from "./engine/engine.ts";
import type { Placement, WasmStep } from "./kernel-code.ts";

/** A row, but for what is the same for all. */
export interface WasmRow<A> extends Omit<Kernel<A>, "target" | "bind" | "encode"> {
  /** Makes the call's phases and arguments for arrays at given places. */
  step(args: A, place: Placement): WasmStep;
}

/** What rows without packed weights have in common. */
export const plainRow = { layouts: null, bits: null, needs: ["simd128"], mStep: 1, nStep: 1 } as const;

/** Makes a kernel of a row of WebAssembly: it can run alone, and be encoded for a plan of many calls. */
/* @__NO_SIDE_EFFECTS__ */
export function wasmKernel<A>({ step, ...row }: WasmRow<A>): Kernel<A> {
  return {
    ...row,
    target: "wasm",
    bind: (args, scratch, threads) => () => runAlone((place) => step(args, place), scratch.length, threads),
    encode: (args, scratch) => ({ target: "wasm", scratch, prepare: (place) => step(args, place) }),
  };
}

let lone: WasmEngine | undefined;
const LONE_BYTES = 1 << 20;

/** An engine on the caller's thread, for calls that come alone. */
function loneEngine(byteLength: number): WasmEngine {
  if (lone && lone.byteLength >= byteLength) return lone;
  void lone?.dispose();
  lone = new WasmEngine({ bytes: Math.max(LONE_BYTES, 2 * byteLength), threads: 1, isShared: false });
  return lone;
}

/** Runs a call made ready for some threads on the caller's. */
function runAlone(prepare: (place: Placement) => WasmStep, scratchBytes: number, threads: number): void {
  const views: ArrayBufferView[] = [];
  const counting = {
    read: (view: ArrayBufferView) => views.push(view),
    write: (view: ArrayBufferView) => views.push(view),
  };
  prepare({ ...counting, scratch: 0, threads });
  const needed = views.reduce((sum, { byteLength }) => sum + byteLength + 64, scratchBytes + (1 << 16));
  const engine = loneEngine(needed);
  const placed: { readonly view: ArrayBufferView; readonly bytes: Uint8Array; readonly isWritten: boolean }[] = [];
  const put = (isWritten: boolean) => (view: ArrayBufferView) => {
    const bytes = engine.allocate(view.byteLength);
    bytes.set(bytesOf(view));
    placed.push({ view, bytes, isWritten });
    return bytes.byteOffset;
  };
  const scratch = engine.allocate(scratchBytes);
  engine.runNow(prepare({ read: put(false), write: put(true), scratch: scratch.byteOffset, threads }));
  for (const { view, bytes, isWritten } of placed) {
    if (isWritten) bytesOf(view).set(bytes);
    engine.free(bytes);
  }
  engine.free(scratch);
}
