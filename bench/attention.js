/**
 * Speed of prefill attention at long contexts, for each class of CPU: `node bench/attention.js [--cpu
 * zen3,alder-lake,zen4,host,decode] [--shapes 32/8x64,14/2x64] [--contexts 2048,8192] [--rows 512] [--rounds 5]`. Measures the kernels
 * that are chosen for each class, if this machine can run them; pages of float32 keep exact floats, the others take words of 16
 * bits or tiles. Build with `node scripts/native/build.js --fast`: other builds do not optimize kernels of other classes.
 * `--cpu decode` measures a decoded token's attention here: out of the second-level cache, and out of memory beside plain reads.
 * Writes bench/results/attention.md.
 */
import { parseArgs } from "node:util";
import { hostCpu } from "../dist/index.js";
import { cpuWith } from "../dist/kernels/cpu.js";
import { updateAndAttend } from "../dist/kernels/families/index.js";
import { selectKernel } from "../dist/kernels/select.js";
import { pagedAttention } from "./kernel-cases.js";
import { multiplyAdds, readBandwidth, requireAddon } from "./peak.js";
import { digits, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    cpu: { type: "string", default: "zen3,alder-lake,zen4,host" },
    shapes: { type: "string", default: "32/8x64,14/2x64,16/8x128" },
    contexts: { type: "string", default: "2048,8192,16384" },
    rows: { type: "string", default: "512" },
    rounds: { type: "string", default: "5" },
  },
});
const m = Number(options.rows);
const DTYPES = ["f32", "f16", "int8"];

/** A CPU of a class, as far as this machine has its features. @param {string} name */
function cpuOf(name) {
  if (name === "host") return hostCpu();
  const able = hostCpu().features;
  return { name, features: new Set([...cpuWith(name).features].filter((feature) => able.has(feature))) };
}

/**
 * Multiply-adds of a cycle on a core with three vector ports, as Intel's, of which two multiply and with vectors of 512
 * bits two are there: products of floats, and of words where additions are apart and where they are not.
 */
const perCycle = ({ features }) => {
  if (features.has("amx_bf16")) return { floats: 32, words: 512 };
  if (features.has("avx512_vnni")) return { floats: 32, words: 64 };
  return { floats: 16, words: features.has("avx_vnni") ? 32 : 24 };
};

function measured(cpu, dtype, shape, context) {
  const [heads, kvHeads, headDim] = shape.split(/[/x]/).map(Number);
  const { args: make, macs } = pagedAttention({ m, dtype, context, heads, kvHeads, headDim });
  const args = make();
  const kernel = selectKernel(updateAndAttend, { layout: null, bits: null, m }, cpu);
  const scratch = new Uint8Array(kernel.scratchBytes(args, 1));
  const addon = requireAddon();
  const plan = addon.createPlan([kernel.encode(args, scratch)], 1);
  // A plan does not keep the memory that it works on.
  const memory = { args, scratch };
  return { kernel: kernel.name, macs, run: () => addon.runPlan(plan, 1), memory, best: Number.POSITIVE_INFINITY };
}

/** Positions whose keys and values stay in the second-level cache, and that come from memory with so many bytes of layers. */
const NEAR = 1024;
const FAR = 16384;
const FAR_BYTES = 4e8;

/** Nanoseconds of one thread for a position of one KV head, the best of some runs, by processor time. */
function decodedKey(dtype, shape, context) {
  const [heads, kvHeads, headDim] = shape.split(/[/x]/).map(Number);
  const { args: make, bytes } = pagedAttention({ m: 1, dtype, context, heads, kvHeads, headDim });
  const addon = requireAddon();
  const layers = Array.from({ length: context === NEAR ? 1 : Math.ceil(FAR_BYTES / bytes) }, () => {
    const args = make();
    const kernel = selectKernel(updateAndAttend, { layout: null, bits: null, m: 1 }, hostCpu());
    const scratch = new Uint8Array(kernel.scratchBytes(args, 1));
    return { args, scratch, plan: addon.createPlan([kernel.encode(args, scratch)], 1) };
  });
  const repeats = context === NEAR ? 100 : 1;
  const times = Array.from({ length: 2 * Number(options.rounds) }, () => {
    const before = process.cpuUsage();
    for (let i = 0; i < repeats; i++) for (const { plan } of layers) addon.runPlan(plan, 1);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / repeats / layers.length;
  });
  const nanoseconds = (1000 * Math.min(...times)) / context / kvHeads;
  return { nanoseconds, gigabytes: bytes / context / kvHeads / nanoseconds };
}

/** One thread's attention of a decoded token, beside plain reads of memory. */
async function decodeSection() {
  const memory = new Uint8Array(requireAddon().allocate(FAR_BYTES)).fill(1);
  const rows = [];
  for (const shape of options.shapes.split(","))
    for (const dtype of ["f16", "int8"]) {
      const near = decodedKey(dtype, shape, NEAR);
      const far = decodedKey(dtype, shape, FAR);
      const reads = (await readBandwidth([memory], 1)) / 1e9;
      rows.push([
        shape,
        dtype,
        digits(near.nanoseconds),
        digits(far.nanoseconds),
        digits(far.gigabytes),
        digits(reads),
      ]);
    }
  const head = ["heads", "pages of", `ns behind ${NEAR}`, `ns behind ${FAR}`, "GB/s there", "GB/s of plain reads"];
  const text = `Nanoseconds of one thread for a position of one KV head, behind ${NEAR} positions (in the second-level cache) and ${FAR} (out of memory).`;
  return `## decode\n\n${text}\n\n${table(head, rows)}`;
}

const floatPeak = multiplyAdds("f32", 1);
const sections = [];
for (const name of options.cpu.split(",")) {
  if (name === "decode") {
    sections.push(await decodeSection());
    continue;
  }
  const cpu = cpuOf(name);
  const bounds = perCycle(cpu);
  // The peak of floats is that of vectors of 512 bits.
  const bound = (macs) => digits((floatPeak * macs) / 32 / 1e9);
  const rows = [];
  const names = new Set();
  for (const shape of options.shapes.split(","))
    for (const context of options.contexts.split(",").map(Number)) {
      const all = DTYPES.map((dtype) => measured(cpu, dtype, shape, context));
      for (let round = 0; round <= Number(options.rounds); round++)
        for (const each of all) {
          const start = performance.now();
          each.run();
          if (round > 0) each.best = Math.min(each.best, performance.now() - start);
        }
      const rates = all.map(({ kernel, macs, best }) => {
        names.add(kernel);
        return macs / best / 1e6;
      });
      const [exact, ...others] = rates;
      rows.push([
        shape,
        String(context),
        digits(exact),
        ...others.map((r) => `${digits(r)} (${(r / exact).toFixed(2)})`),
      ]);
      console.error(name, ...rows.at(-1));
    }
  const head = ["heads", "tokens before", ...DTYPES.map((dtype) => `pages of ${dtype}`)];
  sections.push(
    `## ${name}\n\nKernel: ${[...names].join(", ")}. Bounds: ${bound(bounds.floats)} of floats, ${bound(bounds.words)} of words or tiles.\n\n${table(head, rows)}`,
  );
}

writeReport("attention", {
  title: "Attention of prompts",
  command: "node bench/attention.js",
  isPartial: true,
  sections: [
    `GMAC/s of one core for ${m} tokens of a prompt, whose keys and values are in pages: the best of ${options.rounds} runs in turn; in brackets beside pages of f32, which keep exact floats. Other names than \`host\` are kernels for those CPUs, run on this one. Bounds are those of products alone, by the multiply-adds that floats of 512 bits reach here just before: 16 a cycle of floats of 256 bits, 24 of words on AVX2 (a product and an addition of 16, three operations a cycle; 32 on cores with four), 32 on AVX-VNNI, 64 on AVX-512 with VNNI, 512 of bf16 tiles.`,
    ...sections,
  ],
});
