/** A loaded program: constants in memory, metadata read, operators known. Sessions hold the state. */
import { checkFields, checkOptions, checkString, checkWhole } from "../arguments.ts";
import { deferred } from "../deferred.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { withOffGraphCaches } from "../executorch/operators/kvcache.ts";
import type { Cpu, KernelMemory } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { programMemory } from "../kernels/memory.ts";
import { defaultThreads } from "../kernels/plan.ts";
import { logInfo } from "../log.ts";
import { sequencesSpec } from "../ops/builder.ts";
import type { KernelCall } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { type DataSource, type Method, type Program, SCRATCH_MEMORY, STATE_MEMORY } from "../program/program.ts";
import { operators } from "../registry/operators.ts";
import { type SequenceStatistics, SequenceStore } from "../sequences/store.ts";
import type { Tensor } from "../tensor.ts";
import { blamed } from "./blame.ts";
import { MethodCalls } from "./calls/method-calls.ts";
import type { Profile } from "./calls/profile.ts";
import { lookedUpConstants } from "./looked-up.ts";
import { allocate, freeWith, Holdings } from "./memory.ts";
import { checkMethod } from "./method.ts";
import {
  checkNoSequences,
  chooseSequences,
  type SequenceLoadOptions,
  sequenceUses,
  WASM_CACHE_BYTES_MAX,
} from "./sequence-options.ts";
import { Session } from "./session.ts";
import { checkConstants } from "./stored-constants.ts";

export type Metadata = number | boolean | readonly number[];

/** Options of loading a program: operators, CPU, threads, progress, profile, and limits of its sequences. */
export interface LoadOptions extends SequenceLoadOptions {
  /** Operators that the program may use. Default: those of this package and those registered. */
  readonly registry?: OperatorRegistry;
  /** CPU whose kernels are selected. Default: this machine's. */
  readonly cpu?: Cpu;
  /** Threads of native kernels. Default: the physical performance cores that the container may use. */
  readonly threads?: number | undefined;
  /** Collects the times of all calls of the program's sessions. */
  readonly profile?: Profile | undefined;
  /** Called as constants are read, with bytes done and bytes in all. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Ends the load; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** Bytes of memory for constants, scratch and one session's state. */
export interface MemoryUse {
  /** Bytes of weights and other constants. */
  readonly constants: number;
  /** Bytes of scratch, which calls overwrite. */
  readonly scratch: number;
  /** Bytes of one session's state. */
  readonly state: number;
}

/**
 * A program that is ready to run: its constants are in memory, its metadata is read and its operators are known.
 * `createSession()` gives a session that runs its methods.
 */
export class LoadedProgram {
  /** Path of the file that it was read from, or "program". */
  readonly file: string;
  /** CPU whose kernels are selected. */
  readonly cpu: Cpu;
  /** Number of threads that kernels run on. */
  readonly threads: number;
  /** Allocator of constants, scratch and state, for kernels that need memory of their own, such as WebAssembly's. */
  readonly memory: KernelMemory;
  /** Profile that collects the times of calls; undefined without one. */
  readonly profile: Profile | undefined;
  /** Operators that the program may use. */
  readonly registry: OperatorRegistry;
  /** Constant methods of the program, by name. */
  readonly metadata: ReadonlyMap<string, Metadata>;
  /** Bytes of the constants, by their indices in the program. */
  readonly constants: readonly Uint8Array[];
  /** Handle of the sequence table; null without a paged KV cache. */
  readonly sequences: Tensor | null;
  readonly #methods: ReadonlyMap<string, Method>;
  readonly #scratch = new Map<string, Uint8Array>();
  readonly #calls = new Map<string, MethodCalls>();
  readonly #kernels = new Map<string, Set<string>>();
  #kernelScratch: Uint8Array = new Uint8Array();
  #isDisposed = false;
  #turn: Promise<void> = Promise.resolve();

  private constructor(
    program: Program,
    memory: KernelMemory,
    constants: readonly Uint8Array[],
    options: Required<Pick<LoadOptions, "registry" | "cpu">> & {
      threads: number;
      profile: Profile | undefined;
      sequences: Tensor | null;
    },
  ) {
    this.file = program.file ?? "program";
    this.cpu = options.cpu;
    this.threads = memory.threads ?? options.threads;
    this.memory = memory;
    this.profile = options.profile;
    this.registry = options.registry;
    this.constants = constants;
    this.sequences = options.sequences;
    this.metadata = readMetadata(program);
    this.#methods = callableMethods(program, this.metadata);
    freeWith(this, holdingsOf(memory));
  }

  /** Reads all constants and checks that every operator is known. UnsupportedError lists unknown operators. */
  static async load(given: Program, options: LoadOptions = {}): Promise<LoadedProgram> {
    checkProgram(given);
    checkOptions(options);
    const { registry = operators, cpu = hostCpu(), profile } = options;
    const threads = checkWhole("threads", options.threads ?? defaultThreads(), 1, THREADS_MAX);
    const program = withOffGraphCaches(given, lengthsOf);
    let memory: KernelMemory | undefined;
    try {
      for (const method of program.methods) checkMethod(method, registry);
      const { uses, chosen } = sequencesOf(program, registry, cpu, options);
      memory = programMemory(cpu, bytesNeeded(program) + (chosen?.cacheBytes ?? 0), threads);
      const constants = await readConstants(program, memory, options);
      await checkConstants(program, registry, constants, !memory.holdsConstants);
      for (const index of lookedUpConstants(program, registry)) memory.readByRows?.(constants[index]!);
      const store = chosen && new SequenceStore(memory, uses, chosen);
      const sequences = store && { ...sequencesSpec, data: store.table.handle };
      const loaded = new LoadedProgram(program, memory, constants, { registry, cpu, threads, profile, sequences });
      stores.set(loaded, store);
      return loaded;
    } catch (error) {
      await memory?.dispose();
      throw blamed(program.file ?? "program", options.signal, error);
    }
  }

  /**
   * Aborts the run under way with an error, and frees threads and WebAssembly memory; native memory is freed by garbage
   * collection. Sessions used afterwards throw UnsupportedError.
   */
  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.memory.abort[0] = 1;
    await this.exclusive(async () => {
      await storeOf(this)?.archive?.flush();
      storeOf(this)?.dispose();
      await this.memory.dispose();
    });
  }

  /** UnsupportedError after `dispose`, since the memory may belong to another program by now. */
  checkUsable(): void {
    if (this.#isDisposed) throw new UnsupportedError("the program was disposed of");
  }

  /** Makes a session with zeroed state. */
  createSession(): Session {
    this.checkUsable();
    return new Session(this);
  }

  /** The method of this name. InvalidArgumentError when there is none. */
  method(name: string): Method {
    checkString("name", name);
    const method = this.#methods.get(name);
    if (!method)
      throw new InvalidArgumentError(
        `${this.file}: method ${name}: expected one of ${[...this.#methods.keys()].join(", ")}`,
      );
    return method;
  }

  /** All methods except those that return metadata. */
  get methods(): readonly Method[] {
    return [...this.#methods.values()];
  }

  /** The part of a method's calls that does not depend on input sizes, computed once. */
  callsOf(method: Method): MethodCalls {
    const known = this.#calls.get(method.name) ?? new MethodCalls(method, this.registry);
    this.#calls.set(method.name, known);
    return known;
  }

  /** Whether there is a method of this name. */
  has(name: string): boolean {
    return this.#methods.has(name);
  }

  /**
   * A metadata number that counts or limits something, from 1 to 2^31 - 1, or `fallback` where there is none.
   * InvalidFileError for any other value, and for a missing one without `fallback`.
   */
  count(name: string, fallback?: number): number {
    checkString("name", name);
    return countOf(this.metadata, name, { file: this.file, fallback });
  }

  /** Statistics of the paged KV cache; null for a program without one. */
  get sequenceStatistics(): SequenceStatistics | null {
    return storeOf(this)?.statistics ?? null;
  }

  /** Bytes of one session's state. */
  get stateBytes(): number {
    return largestMemory([...this.#methods.values()], STATE_MEMORY);
  }

  /** Bytes of memory of the program and one session. */
  get memoryUse(): MemoryUse {
    const sum = (parts: Iterable<Uint8Array>) => [...parts].reduce((total, part) => total + part.byteLength, 0);
    return { constants: sum(this.constants), scratch: sum(this.#scratch.values()), state: this.stateBytes };
  }

  /** Scratch of a method, which all sessions share, since they take turns. */
  scratchOf(method: Method): Uint8Array {
    let scratch = this.#scratch.get(method.name);
    if (!scratch) {
      scratch = allocate(this.memory, "scratch", method.memorySizes[SCRATCH_MEMORY] ?? 0);
      this.#scratch.set(method.name, scratch);
    }
    return scratch;
  }

  /**
   * Scratch of kernels, which all runs share, since they take turns. Earlier arrays stay valid; it grows in steps, so that
   * runs of many sizes do not each allocate their own.
   */
  kernelScratch(byteLength: number): Uint8Array {
    if (byteLength > this.#kernelScratch.length) {
      const room = Math.max(byteLength, Math.min(2 * this.#kernelScratch.length, byteLength + SPARE_SCRATCH_BYTES));
      this.#kernelScratch = allocate(this.memory, "scratch of kernels", room);
    }
    return this.#kernelScratch.subarray(0, byteLength);
  }

  /** Runs `work` after all earlier work on this program has ended. */
  async exclusive<R>(work: () => Promise<R>): Promise<R> {
    const previous = this.#turn;
    const { promise, resolve } = deferred();
    this.#turn = promise;
    await previous;
    try {
      return await work();
    } finally {
      resolve();
    }
  }

  /** Notes which kernel serves each operator; the first time, also in the log at info level. */
  noteKernels(calls: readonly KernelCall[]): void {
    for (const { operator, kernel } of calls) {
      const known = this.#kernels.get(operator) ?? new Set();
      this.#kernels.set(operator, known);
      if (known.has(kernel.name)) continue;
      known.add(kernel.name);
      logInfo(() => `operator ${operator} runs on kernel ${kernel.name}`);
    }
  }

  /** Kernels used so far, by operator. */
  get activeKernels(): ReadonlyMap<string, ReadonlySet<string>> {
    return this.#kernels;
  }
}

/** Sizes and ids are 32-bit in kernels and files. */
const COUNT_MAX = 2 ** 31 - 1;
/** Most bytes by which kernel scratch grows beyond what a run needs. */
const SPARE_SCRATCH_BYTES = 1 << 21;
/** Bytes reserved for later allocations: kernel scratch and plans. */
const KERNEL_BYTES = 1 << 25;
/** Number of sessions whose states fit by default: a conversation and one more. */
const SESSIONS = 2;

const stores = new WeakMap<LoadedProgram, SequenceStore | null>();

/** The paged KV cache of a program; null for a program with a contiguous one. */
export function storeOf(program: LoadedProgram): SequenceStore | null {
  return stores.get(program) ?? null;
}

/** What the program's calls keep for each sequence, and the store for it; null for a program without a paged KV cache. */
function sequencesOf(program: Program, registry: OperatorRegistry, cpu: Cpu, options: LoadOptions) {
  const uses = sequenceUses(program.methods, registry);
  if (uses.length === 0) {
    checkNoSequences(options);
    return { uses, chosen: null };
  }
  const most = cpu.features.has("simd128") ? WASM_CACHE_BYTES_MAX : Number.POSITIVE_INFINITY;
  return { uses, chosen: chooseSequences(uses, lengthsOf(program), options, most) };
}

/** Tokens of a step and of a sequence, as the program's metadata has them. InvalidFileError where it has none. */
function lengthsOf(program: Program): { readonly contextLength: number; readonly stepTokens: number } {
  const file = program.file ?? "program";
  const metadata = readMetadata(program);
  const stepTokens = countOf(metadata, "get_max_seq_len", { file });
  return { contextLength: countOf(metadata, "get_max_context_len", { file, fallback: stepTokens }), stepTokens };
}

/** Bytes of memory that a program needs, as far as its file tells. */
export function bytesNeeded({ constants, methods }: Program): number {
  const distinct = new Set(constants.map(({ data }) => data));
  const constantBytes = [...distinct].reduce((sum, { byteLength }) => sum + byteLength + 64, 0);
  const scratch = methods.reduce((sum, { memorySizes }) => sum + (memorySizes[SCRATCH_MEMORY] ?? 0), 0);
  return constantBytes + scratch + SESSIONS * largestMemory(methods, STATE_MEMORY) + KERNEL_BYTES;
}

/** Bytes of memory number `memory` in the method that has most of it. */
function largestMemory(methods: readonly Method[], memory: number): number {
  return methods.reduce((most, { memorySizes }) => Math.max(most, memorySizes[memory] ?? 0), 0);
}

/** Reads the bytes of all constants, directly into kernel memory where kernels need them there. */
async function readConstants(program: Program, memory: KernelMemory, options: LoadOptions): Promise<Uint8Array[]> {
  const { onProgress, signal } = options;
  const totalBytes = program.constants.reduce((sum, { data }) => sum + data.byteLength, 0);
  const known = new Map<DataSource, Uint8Array>();
  const constants: Uint8Array[] = [];
  let doneBytes = 0;
  for (const { data } of program.constants) {
    signal?.throwIfAborted();
    const bytes = known.get(data) ?? (await readConstant(data, memory));
    known.set(data, bytes);
    constants.push(bytes);
    doneBytes += data.byteLength;
    onProgress?.(doneBytes, totalBytes);
  }
  return constants;
}

async function readConstant(data: DataSource, memory: KernelMemory): Promise<Uint8Array> {
  if (!memory.holdsConstants) return aligned(await data.read());
  const target = allocate(memory, "constants", data.byteLength);
  if (data.readInto) await data.readInto(target);
  else target.set(await data.read());
  return target;
}

/** Most threads, more than any machine needs; each has scratch of its own. */
const THREADS_MAX = 1024;

function countOf(
  metadata: ReadonlyMap<string, Metadata>,
  name: string,
  { file, fallback }: { readonly file: string; readonly fallback?: number | undefined },
): number {
  const value = metadata.get(name);
  if (value === undefined && fallback !== undefined) return fallback;
  if (value === undefined)
    throw new InvalidFileError(file, `expected metadata method ${name}; it is needed to generate text`);
  if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > COUNT_MAX)
    throw new InvalidFileError(
      file,
      `metadata method ${name}: expected a whole number from 1 to ${COUNT_MAX} but found ${value}`,
    );
  return value as number;
}

/** Typed views need aligned starts, so data at an unaligned offset is copied once. */
function aligned(bytes: Uint8Array): Uint8Array {
  return bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
}

/** Made outside of the program's class, so that no closure keeps the program from being garbage collected. */
function holdingsOf(memory: KernelMemory): Holdings {
  const holdings = new Holdings();
  holdings.add(() => void memory.dispose());
  return holdings;
}

function callableMethods(program: Program, metadata: ReadonlyMap<string, Metadata>): Map<string, Method> {
  const callable = program.methods.filter(({ name }) => !metadata.has(name));
  return new Map(callable.map((method) => [method.name, method]));
}

/** Metadata of a program by name: the results of methods without inputs and instructions, which return constants. */
export function readMetadata(program: Program): Map<string, Metadata> {
  const metadata = new Map<string, Metadata>();
  for (const { name, inputs, outputs, instructions, values } of program.methods) {
    if (inputs.length > 0 || instructions.length > 0) continue;
    const literals = outputs.map((index) => {
      const value = values[index]!;
      return value.kind === "int" || value.kind === "double" || value.kind === "bool" ? value.value : null;
    });
    if (literals.length === 0 || literals.includes(null)) continue;
    const single = literals.length === 1 && name !== "get_eos_ids" ? literals[0]! : null;
    metadata.set(name, single ?? literals.map(Number));
  }
  return metadata;
}

/** InvalidArgumentError for anything but a program. */
export function checkProgram(program: Program): void {
  checkFields("program", program, ["methods", "constants"], "one of readProgram() or compileModel()");
}
