/**
 * The memory of an engine: sized for the program, 64-bit if that needs more than 4 GiB. An engine's old memory is reused for
 * the next one, unless it was garbage-collected first: its pages cannot be returned otherwise.
 */
import { UnsupportedError } from "../../../errors.ts";
import { Module } from "../assembler/module.ts";
import { isShortOfAddresses } from "./address-space.ts";
import { HEAP_START } from "./runner.ts";
import { PAGE_BYTES, type WasmMemory, webAssembly } from "./web-assembly.ts";

const NARROW_PAGES_MAX = 65536;
/** V8's limit of 64-bit memories: 16 GiB. */
const WIDE_PAGES_MAX = 262144;

export interface MemoryKind {
  readonly isWide: boolean;
  readonly isShared: boolean;
}

/** The limits that modules declare of their memory. Any memory of the kind is within them. */
export function moduleMemory({ isWide, isShared }: MemoryKind): Module["options"]["memory"] {
  return { initialPages: 1, maximumPages: isWide ? WIDE_PAGES_MAX : NARROW_PAGES_MAX, isShared };
}

let wide: boolean | undefined;

/** Whether this JavaScript engine supports 64-bit memories. */
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
 * Whether so many bytes, with the engine's own, need 64-bit addresses. UnsupportedError, naming the size, when they exceed what
 * this JavaScript engine supports.
 */
export function needsWide(bytes: number): boolean {
  const all = bytes + HEAP_START;
  if (all <= mostBytes(false)) return false;
  const most = mostBytes(hasWideMemory());
  if (all <= most) return true;
  throw tooMuch(all, `WebAssembly gives at most ${most} here`);
}

function tooMuch(bytes: number, reason: string): UnsupportedError {
  return new UnsupportedError(
    `the program needs ${bytes} bytes of memory: ${reason}; take a smaller model, fewer bits or a shorter context`,
  );
}

/**
 * The error where there is no room for a memory: engines reserve address space for its maximum, V8 for all that an access could
 * reach.
 */
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
  /** Bytes from this offset on have never been written. */
  readonly cleanFrom: number;
}

interface IdleMemory {
  readonly kind: MemoryKind;
  readonly reference: WeakRef<WasmMemory>;
}

/** Memories that no engine uses. */
const idle = new Set<IdleMemory>();

/** Takes a memory of at least so many bytes. UnsupportedError when there is none. */
export function takeMemory(bytes: number, kind: MemoryKind): EngineMemory {
  const known = takeIdle(bytes, kind);
  if (known) return { ...kind, memory: known, cleanFrom: known.buffer.byteLength };
  const pages = Math.max(1, Math.ceil(bytes / PAGE_BYTES));
  const most = mostBytes(kind.isWide) / PAGE_BYTES;
  const memory = makeMemory(pages, most, kind) ?? makeMemory(pages, pages, kind);
  if (!memory || isShortOfAddresses()) throw notGiven(bytes);
  return { ...kind, memory, cleanFrom: 0 };
}

/** Makes a memory with this many pages; null when it cannot be had. */
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

/** Grows a memory. UnsupportedError when it cannot grow. */
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

/** A reused memory may be this much larger than twice the request: otherwise small programs would keep large memories. */
const SPARE_BYTES = 1 << 26;

/** Takes the smallest idle memory that is large enough. */
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

/** Makes a memory that is no longer used available for reuse. */
export function releaseMemory({ memory, isWide, isShared }: EngineMemory): void {
  idle.add({ kind: { isWide, isShared }, reference: new WeakRef(memory) });
}
