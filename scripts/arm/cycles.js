/** Cycles of a kernel's innermost loop by llvm-mca's models of cores, without caches, memory or mispredicted branches. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { program } from "./emulator.js";

/** Turns of a loop that llvm-mca goes through: more than fill its queues, and as many instructions. */
const turnsOf = (instructions) => Math.max(30, Math.ceil(20000 / instructions.length));

/**
 * Cores by the names of our columns. LLVM's models let more instructions in each cycle than the cores do; `width` is what
 * the makers' optimization guides say.
 * @type {Record<string, { cpu: string, width?: number }>}
 */
export const cores = {
  A55: { cpu: "cortex-a55" },
  A510: { cpu: "cortex-a510" },
  N1: { cpu: "neoverse-n1", width: 4 },
  N2: { cpu: "neoverse-n2", width: 5 },
  V1: { cpu: "neoverse-v1", width: 8 },
  V2: { cpu: "neoverse-v2", width: 8 },
};

/** Instructions of the program from one address to another, by address. */
function disassemble(llvm, first, last) {
  const range = [`--start-address=${first}`, `--stop-address=${last + 4}`];
  const args = ["-d", "--mattr=+all", "--no-show-raw-insn", ...range, program];
  const output = execFileSync(`llvm-objdump-${llvm}`, args, { encoding: "utf8", maxBuffer: 1 << 28 });
  const lines = output.matchAll(/^\s*([0-9a-f]+):\s+(.*?)\s*(?:\/\/.*|<.*)?$/gm);
  return new Map(Array.from(lines, ([, address, text]) => [Number.parseInt(address, 16), text.replace(/\s+/g, " ")]));
}

/** An instruction as llvm-mca takes it: branches lead nowhere. */
function standalone(text) {
  const [name, ...operands] = text.split(/[ ,]+/);
  if (/^cbn?z$/.test(name)) return `${name} ${operands[0]}, #8`;
  if (/^tbn?z$/.test(name)) return `${name} ${operands[0]}, ${operands[1]}, #8`;
  if (/^(ret|br|blr)$/.test(name)) return "nop";
  return /^(b|bl|b\..*)$/.test(name) ? `${name} #8` : text;
}

const isProduct = (text) => /^(sdot|usdot|smmla) /.test(text);

/**
 * All that runs, but less than a 250th of it: instructions that run equally often, as far as what runs between them does,
 * with how often.
 * @param {Map<number, number>} counts
 * @returns {{ instructions: string[], count: number }[]}
 */
export function allStretches(counts, llvm) {
  const addresses = [...counts.keys()].sort((a, b) => a - b);
  const texts = disassemble(llvm, addresses[0], addresses.at(-1));
  const stretches = [];
  for (const [i, address] of addresses.entries()) {
    const count = counts.get(address);
    if (counts.get(addresses[i - 1]) !== count) stretches.push({ count, instructions: [] });
    stretches.at(-1).instructions.push(standalone(texts.get(address)));
  }
  const size = ({ count, instructions }) => count * instructions.length;
  const total = stretches.reduce((sum, stretch) => sum + size(stretch), 0);
  return stretches.filter((stretch) => size(stretch) > total / 250);
}

/**
 * One turn of the loops that run `turns` times at least and hold the products, with what runs more often in them,
 * repeated.
 * @param {Map<number, number>} counts
 * @returns {{ instructions: string[], count: number }}
 */
export function steadyLoop(counts, turns, llvm) {
  const addresses = [...counts.keys()].sort((a, b) => a - b);
  const texts = disassemble(llvm, addresses[0], addresses.at(-1));
  const frequent = addresses.filter((address) => counts.get(address) >= turns);
  const loops = [];
  for (const address of frequent) {
    if (loops.at(-1)?.at(-1) !== address - 4) loops.push([]);
    loops.at(-1).push(address);
  }
  const stretches = [];
  for (const loop of loops.filter((each) => each.some((address) => isProduct(texts.get(address) ?? ""))))
    for (const address of loop) {
      const count = counts.get(address);
      if (stretches.at(-1)?.count !== count) stretches.push({ count, instructions: [] });
      stretches.at(-1).instructions.push(standalone(texts.get(address)));
    }
  const base = Math.min(...stretches.map(({ count }) => count));
  const instructions = stretches.flatMap((stretch) =>
    Array(Math.round(stretch.count / base))
      .fill(stretch.instructions)
      .flat(),
  );
  return { instructions, count: base };
}

/**
 * Cycles that one turn of a loop takes on a core.
 * @param {string[]} instructions
 * @param {{ cpu: string, width?: number }} core
 * @param {string} file where to write the loop for llvm-mca
 */
export function cyclesOf(instructions, { cpu, width }, llvm, file) {
  writeFileSync(file, `${instructions.join("\n")}\n`);
  const turns = turnsOf(instructions);
  const features = "-mattr=+dotprod,+i8mm,+bf16,+fullfp16";
  const args = ["-mtriple=aarch64-linux-gnu", `-mcpu=${cpu}`, features, `-iterations=${turns}`, file];
  const dispatch = width ? [`-dispatch=${width}`] : [];
  const output = execFileSync(`llvm-mca-${llvm}`, [...dispatch, "-instruction-info=false", ...args], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 1 << 28,
  });
  return Number(output.match(/^Total Cycles: +(\d+)/m)?.[1]) / turns;
}
