/**
 * Finds what threads of WebAssembly kernels would do to each other's memory, without any luck of timing. Code is made with
 * a call before each load and store; tiles of a phase are dealt to threads, and run one after the other. Two threads that
 * touch the same byte within a phase race, unless both only read it.
 */

import { problemOf, type SampleCall } from "../../src/kernels/families/sample-call.ts";
import {
  type Body,
  type Callable,
  type FunctionCode,
  type Node,
  when,
} from "../../src/kernels/wasm/assembler/expression.ts";
import { Module } from "../../src/kernels/wasm/assembler/module.ts";
import { opcodes } from "../../src/kernels/wasm/assembler/opcodes.ts";
import { type WasmMemory, webAssembly } from "../../src/kernels/wasm/engine/web-assembly.ts";
import { pagesBy, statesBy } from "../../src/kernels/wasm/kernel.ts";
import type { KernelCode, WasmPhase } from "../../src/kernels/wasm/kernel-code.ts";
import { bytesOf } from "../../src/tensor.ts";
import { Random } from "./random.ts";

const PAGE_BYTES = 65536;
const THREADS_MAX = 8;

/** An access: its address, the constant offset that is added to it, and twice its bytes, with 1 more for a write. */
const touch: Callable = { name: "touch", params: { address: "ptr", offset: "i32", kind: "i32" }, result: "ptr" };
/** A copy of bytes. */
const copy: Callable = { name: "copy", params: { to: "ptr", from: "ptr", bytes: "ptr" }, result: null };
/** The next number of a counter that threads share: which tile a thread takes. */
const take: Callable = { name: "take", params: { address: "ptr", by: "i32" }, result: "i32" };
const imports = [touch, copy, take];

const number = (value: number): Node => ({ kind: "const", type: "i32", value });

/** The same code, with what it does to memory told. */
function watched(node: Node): Node {
  if (node.kind === "op") return watchedOperation({ ...node, operands: node.operands.map(watched) });
  if (node.kind === "if") {
    const [condition, otherwise] = [{ type: "i32", node: watched(node.condition) } as const, node.otherwise];
    return when(condition, watchedBody(node.then), otherwise && watchedBody(otherwise)).node;
  }
  if (node.kind === "doWhile" || node.kind === "whileDo")
    return { ...node, condition: watched(node.condition), body: watchedBody(node.body) };
  if (node.kind === "set" || node.kind === "tee" || node.kind === "widen" || node.kind === "drop")
    return { ...node, value: watched(node.value) };
  return "operands" in node ? { ...node, operands: node.operands.map(watched) } : node;
}

function watchedBody(body: Body): Body {
  return body.map((item) => ("node" in item ? { node: watched(item.node) } : watchedBody(item)));
}

function watchedOperation(node: Extract<Node, { kind: "op" }>): Node {
  const { name, operands, immediates } = node;
  const { immediate, align, result } = opcodes.get(name)!;
  if (name === "memory.copy") return { kind: "call", target: copy, operands };
  if (name === "i32.atomic.rmw.add") {
    const [address, by] = operands as [Node, Node];
    const at: Node = {
      kind: "op",
      name: "ptr.add",
      operands: [address, { ...size, value: immediates[0]! }],
      immediates: [],
    };
    return { kind: "call", target: take, operands: [at, by] };
  }
  if (name.includes("atomic")) throw new Error(`${name}: kernels were not known to use it`);
  if (immediate !== "memory" && immediate !== "memoryLane") return node;
  const offset = immediates.at(-1) ?? 0;
  const kind = 2 * 2 ** align + (result === null ? 1 : 0);
  const [address, ...others] = operands as [Node, ...Node[]];
  const told: Node = { kind: "call", target: touch, operands: [address, number(offset), number(kind)] };
  return { ...node, operands: [told, ...others] };
}

const size = { kind: "const", type: "ptr" } as const;

const watchedFunction = (code: FunctionCode): FunctionCode => ({ ...code, body: watchedBody(code.body) });

/** What has touched each byte: 8 bits of threads that read it, 8 of those that wrote it, and the phase. */
class Shadow {
  readonly #bytes: Uint32Array;
  #phase = 0;

  constructor(bytes: number) {
    this.#bytes = new Uint32Array(bytes);
  }

  nextPhase(): void {
    this.#phase += 1 << 16;
  }

  /** Whether another thread has touched one of the bytes in a way that races. */
  touch(from: number, count: number, thread: number, isWrite: boolean): boolean {
    const bytes = this.#bytes;
    const phase = this.#phase;
    const own = isWrite ? 256 << thread : 1 << thread;
    const others = (isWrite ? 0xffff : 0xff00) & ~(0x101 << thread);
    let races = 0;
    for (let at = from; at < from + count; at++) {
      const before = bytes[at]! >>> 16 === phase >>> 16 ? bytes[at]! : phase;
      races |= before & others;
      bytes[at] = before | own;
    }
    return races !== 0;
  }
}

/** A memory in which phases run on threads that are played one after the other. */
export class RaceFinder {
  readonly memory: WasmMemory;
  readonly #shadow: Shadow;
  readonly #threads: number;
  readonly #random: Random;
  readonly #codes = new Map<string, (args: number, tile: number, thread: number) => void>();
  /** The thread that each number of a counter falls to, and the next one that a thread looks at. */
  readonly #owners = new Map<number, number[]>();
  readonly #next = new Map<number, number>();
  #thread = 0;
  #end = 64;
  #phase = "";
  readonly #races = new Set<string>();

  constructor(bytes: number, threads: number, seed: number) {
    if (threads > THREADS_MAX) throw new RangeError(`threads: expected at most ${THREADS_MAX}`);
    const pages = Math.ceil(bytes / PAGE_BYTES) + 1;
    this.memory = new webAssembly!.Memory({ initial: pages, maximum: pages, shared: false });
    this.#shadow = new Shadow(pages * PAGE_BYTES);
    this.#threads = threads;
    this.#random = new Random(seed);
  }

  /** Zeroed bytes at a multiple of 64. */
  allocate(bytes: number): Uint8Array {
    const at = this.#end;
    this.#end = at + Math.ceil(bytes / 64) * 64 + 64;
    return new Uint8Array(this.memory.buffer, at, bytes);
  }

  /** Runs phases and gives what raced in them, in words. */
  run(phases: readonly WasmPhase[]): string[] {
    const placed = phases.map(({ args }) => {
      const bytes = this.allocate(args.length);
      bytes.set(args);
      return bytes.byteOffset;
    });
    for (const [i, { code, tiles }] of phases.entries()) {
      const run = this.#load(code);
      this.#phase = code.key;
      this.#shadow.nextPhase();
      const owners = Array.from({ length: tiles }, (_, tile) => this.#owner(tile));
      for (let thread = 0; thread < this.#threads; thread++) {
        this.#thread = thread;
        this.#next.clear();
        for (const [tile, owner] of owners.entries()) if (owner === thread) run(placed[i]!, tile, thread);
      }
      this.#owners.clear();
    }
    return [...this.#races];
  }

  /** The first tiles fall to a thread each, as they do when all begin together. */
  #owner(index: number): number {
    return index < this.#threads ? index : this.#random.integer(0, this.#threads - 1);
  }

  #load(code: KernelCode) {
    const known = this.#codes.get(code.key);
    if (known) return known;
    const pages = this.memory.buffer.byteLength / PAGE_BYTES;
    const memory = { initialPages: 1, maximumPages: pages, isShared: false };
    const module = new Module({ isWide: false, memory, imports, hasTable: false }, code.build().map(watchedFunction));
    const env = {
      memory: this.memory,
      touch: (address: number, offset: number, kind: number) => {
        this.#touch((address >>> 0) + offset, kind >> 1, (kind & 1) === 1);
        return address;
      },
      copy: (to: number, from: number, bytes: number) => {
        this.#touch(from >>> 0, bytes, false);
        this.#touch(to >>> 0, bytes, true);
        new Uint8Array(this.memory.buffer).copyWithin(to >>> 0, from >>> 0, (from >>> 0) + bytes);
      },
      take: (address: number) => this.#take(address),
    };
    const { exports } = new webAssembly!.Instance(new webAssembly!.Module(module.encode()), { env });
    const run = exports[code.key] as unknown as (args: number, tile: number, thread: number) => void;
    this.#codes.set(code.key, run);
    return run;
  }

  #touch(at: number, bytes: number, isWrite: boolean): void {
    if (at + bytes > this.memory.buffer.byteLength) return;
    if (this.#shadow.touch(at, bytes, this.#thread, isWrite))
      this.#races.add(`${this.#phase}: ${this.#threads} threads touch the same bytes`);
  }

  #take(address: number): number {
    const owners = this.#owners.get(address) ?? [];
    this.#owners.set(address, owners);
    for (let index = this.#next.get(address) ?? 0; ; index++) {
      owners[index] ??= this.#owner(index);
      if (owners[index] !== this.#thread) continue;
      this.#next.set(address, index + 1);
      return index;
    }
  }
}

/** What races in a call of a row on so many threads, and what is wrong with its results. A seed deals tiles its own way. */
export function raceFaults(call: SampleCall, threads: number, seed: number): string[] {
  const finder = new RaceFinder(1 << 22, threads, seed);
  const placed = new Map<ArrayBufferView, Uint8Array>();
  const put = (view: ArrayBufferView) => {
    const bytes = placed.get(view) ?? finder.allocate(view.byteLength);
    bytes.set(bytesOf(view));
    placed.set(view, bytes);
    return bytes.byteOffset;
  };
  const scratch = finder.allocate(call.scratchBytes(threads)).byteOffset;
  const place = { read: put, write: put, pages: pagesBy(put, put), states: statesBy(put, put), scratch, threads };
  const { step, results } = call.step(place);
  const races = finder.run(step.phases);
  bytesOf(results).set(placed.get(results)!);
  const problem = problemOf(call, results);
  return [...races.map((race) => `${call.kernel} (${call.what}): ${race}`), ...(problem === null ? [] : [problem])];
}
