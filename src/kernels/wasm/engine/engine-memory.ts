/**
 * The memory of an engine: made for what a program needs, 64-bit where that is more than 4 GiB. A memory that an engine
 * has done with serves the next one, unless the garbage collector was faster: its pages cannot be given back otherwise.
 */
import { UnsupportedError } from "../../../errors.ts";
import { Module } from "../assembler/module.ts";
import { isShortOfAddresses } from "./address-space.ts";
import { HEAP_START } from "./runner.ts";
import { PAGE_BYTES, type WasmMemory, webAssembly } from "./web-assembly.ts";

const NARROW_PAGES_MAX = 65536;
/** What V8 allows: 16 GiB. */
const WIDE_PAGES_MAX = 262144;

export interface MemoryKind {
  readonly isWide: boolean;
  readonly isShared: boolean;
}

/** Limits that modules declare, so that they fit any memory of the kind. */
export function moduleMemory({ isWide, isShared }: MemoryKind): Module["options"]["memory"] {
  return { initialPages: 1, maximumPages: isWide ? WIDE_PAGES_MAX : NARROW_PAGES_MAX, isShared };
}

let wide: boolean | undefined;

/** Whether this engine has 64-bit memories. */
export function hasWideMemory(): boolean {
  wide ??= supportsWide();
  return wide;
}

function supportsWide(): boolean {
  if (!webAssembly) return false;
  const memory = moduleMemory({ isWide: true, isShared: false });
  if (!webAssembly.validate(new Module({ isWide: true, memory, imports: [], hasTable: false }, []).encode()))
    return false;
  try {
    new webAssembly.Memory({ address: "i64", initial: 1n, maximum: 1n, shared: false });
    return true;
  } catch {
    return false;
  }
}

function mostBytes(isWide: boolean): number {
  return (isWide ? WIDE_PAGES_MAX : NARROW_PAGES_MAX) * PAGE_BYTES;
}

/**
 * Whether addresses must have 64 bits for so many bytes beside the engine's own. UnsupportedError with the size when this
 * engine has too few.
 */
export function needsWide(bytes: number): boolean {
  const all = bytes + HEAP_START;
  if (all <= mostBytes(false)) return false;
  const most = mostBytes(hasWideMemory());
  if (all <= most) return true;
  throw tooMuch(all, `WebAssembly gives at most ${most} here`);
}

function tooMuch(bytes: number, reason: string, cause?: unknown): UnsupportedError {
  return new UnsupportedError(
    `the program needs ${bytes} bytes of memory: ${reason}; take a smaller model, fewer bits or a shorter context`,
    { cause },
  );
}

/** Engines reserve addresses for all that a memory may grow to, and V8 for what any access may reach. */
function notGiven(bytes: number, cause?: unknown): UnsupportedError {
  return new UnsupportedError(
    `the program needs ${bytes} bytes of memory: this machine does not give it; where addresses are limited (ulimit -v), ` +
      "as WebAssembly reserves 10 GB of them for each memory, lift the limit or run node --disable-wasm-trap-handler; " +
      "else take a smaller model, fewer bits or a shorter context",
    { cause },
  );
}

export interface EngineMemory extends MemoryKind {
  readonly memory: WasmMemory;
  /** Bytes from here on have never been written. */
  readonly cleanFrom: number;
}

interface IdleMemory {
  readonly kind: MemoryKind;
  readonly reference: WeakRef<WasmMemory>;
}

/** Memories without an engine. */
const idle = new Set<IdleMemory>();

/** A memory of at least so many bytes. UnsupportedError when it cannot be had. */
export function takeMemory(bytes: number, kind: MemoryKind): EngineMemory {
  const known = takeIdle(bytes, kind);
  if (known) return { ...kind, memory: known, cleanFrom: known.buffer.byteLength };
  const pages = Math.max(1, Math.ceil(bytes / PAGE_BYTES));
  const most = mostBytes(kind.isWide) / PAGE_BYTES;
  const memory = makeMemory(pages, most, kind) ?? makeMemory(pages, pages, kind);
  if (!memory || isShortOfAddresses()) throw notGiven(bytes);
  return { ...kind, memory, cleanFrom: 0 };
}

/** A memory of so many pages; null when it cannot be had. */
export function makeMemory(initial: number, maximum: number, { isWide, isShared }: MemoryKind): WasmMemory | null {
  const pages = (count: number) => (isWide ? BigInt(count) : count);
  const address = isWide ? ({ address: "i64" } as const) : {};
  try {
    return new webAssembly!.Memory({ ...address, initial: pages(initial), maximum: pages(maximum), shared: isShared });
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** Makes a memory longer. UnsupportedError when it cannot be. */
export function growMemory({ memory, isWide }: EngineMemory, bytes: number): void {
  const pages = Math.ceil(bytes / PAGE_BYTES);
  const all = memory.buffer.byteLength + bytes;
  const most = mostBytes(isWide);
  if (all > most) throw tooMuch(all, `its memory has addresses for ${most}`);
  try {
    memory.grow(isWide ? BigInt(pages) : pages);
  } catch (cause) {
    throw notGiven(all, cause);
  }
}

/** Most that a memory may be longer than asked, besides as long again: a small program would keep a large one's pages. */
const SPARE_BYTES = 1 << 26;

/** The shortest idle memory that is long enough. */
function takeIdle(bytes: number, { isWide, isShared }: MemoryKind): WasmMemory | null {
  let best: { readonly entry: IdleMemory; readonly memory: WasmMemory } | null = null;
  for (const entry of idle) {
    const memory = entry.reference.deref();
    if (!memory) idle.delete(entry);
    else if (entry.kind.isWide === isWide && entry.kind.isShared === isShared) {
      const { byteLength } = memory.buffer;
      if (byteLength < bytes || byteLength > 2 * bytes + SPARE_BYTES) continue;
      if (!best || byteLength < best.memory.buffer.byteLength) best = { entry, memory };
    }
  }
  if (best) idle.delete(best.entry);
  return best?.memory ?? null;
}

/** Gives back a memory that nothing uses any more. */
export function releaseMemory({ memory, isWide, isShared }: EngineMemory): void {
  idle.add({ kind: { isWide, isShared }, reference: new WeakRef(memory) });
}
