/** Runs single linear rows in a small emulated program and counts the instructions that they execute. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import {
  baseFlags,
  fileFlags,
  librarySources,
  nativeFolder,
  nativeSources,
  objectName,
  root,
} from "../native/sources.js";
import { zig } from "../release/zig.js";

const folder = join(root, "build", "arm-figures");
const plugin = join(folder, "count.so");

/** The emulated program: one row, once, on one thread (native/arm/bench/run_row.cc). */
export const program = join(folder, "run_row");

/** @typedef {{ row: string, m: number, n: number, k: number, bits: number, group: number }} RowCase */

/** Sources of the rows that are measured, and of what they call. */
const measured = new Set(["cpu.cc", join("arm", "linear_dotprod.cc"), join("arm", "linear_i8mm.cc")]);

/** Compiles the program with the compiler of releases, and the plugin. */
export async function buildEmulated() {
  mkdirSync(folder, { recursive: true });
  const target = ["-target", "aarch64-linux-musl"];
  const bench = { file: join("arm", "bench", "run_row.cc"), features: [] };
  const kernels = nativeSources("arm64").filter(({ file }) => measured.has(file));
  const sources = [...kernels, ...librarySources("arm64", "aqlm"), bench];
  const objects = sources.map(({ file }) => join(folder, objectName(file)));
  const queue = [...sources.entries()];
  const compile = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const [i, source] = next;
      const flags = [...target, ...baseFlags(), ...fileFlags("arm64", source, "zig")];
      await zig(["c++", ...flags, "-c", join(nativeFolder, source.file), "-o", objects[i]]);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, compile));
  await zig(["c++", ...target, ...objects, "-o", program]);
  const [, major, minor] =
    execFileSync("qemu-aarch64", ["--version"], { encoding: "utf8" }).match(/(\d+)\.(\d+)/) ?? [];
  const version = `-DPLUGIN_VERSION=${Number(major) + Number(minor) / 10 < 8.2 ? 1 : 2}`;
  const flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", version];
  await zig(["cc", ...flags, join(root, "scripts", "arm", "count.c"), "-o", plugin]);
}

/**
 * How often each instruction of a row's kernel runs, by address. Leaves out the quantization of activations.
 * @param {RowCase} item
 * @returns {Map<number, number>}
 */
export function countInstructions({ row, m, n, k, bits, group }) {
  const args = ["-cpu", "max", "-plugin", `${plugin},match=lowbit`, "-d", "plugin", program, row];
  const numbers = [m, n, k, bits, group].map(String);
  const run = spawnSync("qemu-aarch64", [...args, ...numbers], { encoding: "utf8", maxBuffer: 1 << 28 });
  if (run.status !== 0) throw new Error(`${row} ${numbers.join(" ")} ended with ${run.status}: ${run.stderr}`);
  const counts = new Map();
  for (const [, address, count, name] of run.stderr.matchAll(/^COUNT (\w+) (\d+) (\S+)/gm)) {
    if (name.includes("quantize")) continue;
    const key = Number.parseInt(address, 16);
    counts.set(key, (counts.get(key) ?? 0) + Number(count));
  }
  return counts;
}
