/**
 * Peak rates of WebAssembly in this engine: int8 multiply-adds a second by relaxed dot products alone, to 32-bit or 16-bit
 * sums, whichever is faster; and bytes a second read by vector loads. Prints both for the number of threads given as argument.
 */
import { once } from "node:events";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { i16x8, i32x4, int, v128 } from "../dist/kernels/wasm/assembler/instructions.js";
import { defineFunction, Module } from "../dist/kernels/wasm/assembler/module.js";
import { moduleMemory } from "../dist/kernels/wasm/engine/engine-memory.js";
import { wasmFeatures } from "../dist/kernels/wasm/features.js";
import { advance, repeat } from "../dist/kernels/wasm/generate/loops.js";

/** Sums side by side: more than a dot product takes steps, and no more than there are registers. */
const CHAINS = 10;
const DOT_MACS = 16;
const DOT_TURNS = 3e6;
/** Bytes that each thread reads: more than the caches of a core hold. */
const READ_BYTES = 256e6;
/** Places that are read side by side, far apart, and the vectors of each that a turn of the loop reads. */
const STREAMS = 8;
const READS = 8;
const STREAM_BYTES = Math.floor(READ_BYTES / STREAMS / (16 * READS)) * 16 * READS;
/** Time that optimising compilers get, and runs of which the best counts. */
const WARM_MS = 500;
const RUNS = 7;

/**
 * Adds a dot product to a sum, by CPU feature. The sum is an operand: compilers would compute the product only once otherwise.
 */
const ways = {
  relaxed_dot: (x, sum) => i32x4.relaxed_dot_i8x16_i7x16_add_s(x, sum, sum),
  relaxed_dot16: (x, sum) => i16x8.add(sum, i16x8.relaxed_dot_i8x16_i7x16_s(x, sum)),
};

/** Dot products of `count` times CHAINS vectors; the sums are stored, so that they are not left out. */
const dotsOf = (name) =>
  defineFunction(name, { at: "ptr", count: "i32" }, ({ at, count }, scope) => {
    const x = scope.local("v128", "x");
    const sums = scope.localArray("v128", "sum", CHAINS);
    const turns = scope.local("i32", "turns");
    return [
      x.set(v128.load(at)),
      repeat(
        turns,
        count,
        sums.map((sum) => sum.set(ways[name](x, sum))),
      ),
      sums.map((sum, i) => v128.store(at, sum, 16 * i)),
    ];
  });

/** Reads `count` times READS vectors of each stream. */
const reads = defineFunction("reads", { at: "ptr", count: "i32" }, ({ at, count }, scope) => {
  const [start, all] = [scope.local("ptr", "start"), scope.local("v128", "all")];
  const turns = scope.local("i32", "turns");
  const places = Array.from(
    { length: STREAMS * READS },
    (_, i) => STREAM_BYTES * Math.floor(i / READS) + 16 * (i % READS),
  );
  const any = places.reduce((vectors, place) => v128.or(vectors, v128.load(at, place)), all);
  return [
    start.set(at),
    repeat(turns, count, [all.set(any), advance(at, 16 * READS)]),
    v128.store(start, i32x4.shr_s(all, int(31))),
  ];
});

/** Ways that are right here. */
const names = Object.keys(ways).filter((name) => wasmFeatures().includes(name));

function instantiate() {
  const memory = moduleMemory({ isWide: false, isShared: false });
  const bytes = new Module({ isWide: false, memory, imports: [], hasTable: false }, [
    ...names.map(dotsOf),
    reads,
  ]).encode();
  const pages = Math.ceil(READ_BYTES / 65536) + 1;
  const own = new WebAssembly.Memory({ initial: pages, maximum: pages });
  new Uint8Array(own.buffer).fill(1);
  return new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory: own } }).exports;
}

/** Runs each piece of work that it is told of, and tells its milliseconds. */
function work() {
  const exports = instantiate();
  const dots = Object.fromEntries(names.map((name) => [name, DOT_TURNS]));
  const counts = { ...dots, reads: STREAM_BYTES / (16 * READS) };
  for (const [name, count] of Object.entries(counts))
    for (const start = performance.now(); performance.now() - start < WARM_MS; ) exports[name](0, count);
  parentPort.on("message", (name) => {
    const start = performance.now();
    exports[name](0, counts[name]);
    parentPort.postMessage(performance.now() - start);
  });
  parentPort.postMessage("ready");
}

/** The least time of the slowest thread, in seconds. @param {Worker[]} workers */
async function best(workers, name) {
  let least = Infinity;
  for (let run = 0; run < RUNS; run++) {
    const all = workers.map((worker) => once(worker, "message"));
    for (const worker of workers) worker.postMessage(name);
    least = Math.min(least, Math.max(...(await Promise.all(all)).map(([ms]) => ms)));
  }
  return least / 1000;
}

async function measure() {
  if (names.length === 0) throw new Error("this engine has no exact relaxed dot product");
  const threads = Number(process.argv[2]);
  const workers = Array.from({ length: threads }, () => new Worker(new URL(import.meta.url)));
  await Promise.all(workers.map((worker) => once(worker, "message")));
  const seconds = [];
  for (const name of names) seconds.push(await best(workers, name));
  const macs = (threads * DOT_TURNS * CHAINS * DOT_MACS) / Math.min(...seconds);
  const read = (threads * STREAMS * STREAM_BYTES) / (await best(workers, "reads"));
  console.log(JSON.stringify({ macs, read }));
  await Promise.all(workers.map((worker) => worker.terminate()));
}

if (isMainThread) await measure();
else work();
