/**
 * Where the time of a prompt goes: linear layers, attention, and all else by operator, for models from files. The best of
 * several prompts, as other work on the machine only adds. Writes bench/results/prompt-shares.md.
 * `node bench/prompt-shares.js <file.gguf | file.pte …> [--threads 2] [--tokens 2048] [--runs 3]`
 */
import { basename } from "node:path";
import { parseArgs } from "node:util";
import { loadModel } from "../dist/api/load-model.js";
import { Profile } from "../dist/index.js";
import { distinctIds } from "./engine-process.js";
import { digits, table, writeReport } from "./report.js";

const { values: options, positionals: files } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", default: "2" },
    tokens: { type: "string", default: "2048" },
    runs: { type: "string", default: "3" },
  },
});
if (files.length === 0) {
  console.error("prompt-shares: expected GGUF files or programs");
  process.exit(2);
}
const tokens = Number(options.tokens);

/** What an operator counts as. @param {string} operator */
function kindOf(operator) {
  if (/linear/.test(operator)) return "linear layers";
  if (/attend|attention/.test(operator)) return "attention";
  return operator;
}

/** Milliseconds by kind of the fastest prompt, and of all of it. @param {string} file */
async function fastestPrompt(file) {
  const profile = new Profile();
  const model = await loadModel(file, { threads: Number(options.threads), contextLength: tokens + 32, profile });
  const decoder = model.createDecoder();
  let best = { total: Number.POSITIVE_INFINITY, kinds: new Map() };
  for (let run = 0; run <= Number(options.runs); run++) {
    decoder.rewind(0);
    profile.reset();
    await decoder.prefill(distinctIds(run, tokens, decoder.vocabularySize));
    const total = profile.milliseconds;
    // The first prompt binds kernels and touches memory.
    if (run === 0 || total >= best.total) continue;
    const kinds = new Map();
    const add = (kind, milliseconds) => kinds.set(kind, (kinds.get(kind) ?? 0) + milliseconds);
    for (const { operator, milliseconds } of profile.entries()) add(kindOf(operator), milliseconds);
    add("between calls", total - [...kinds.values()].reduce((sum, each) => sum + each, 0));
    best = { total, kinds };
  }
  await model.close?.();
  return best;
}

const sections = [];
for (const file of files) {
  const { total, kinds } = await fastestPrompt(file);
  const rows = [...kinds]
    .sort(([, a], [, b]) => b - a)
    .map(([kind, milliseconds]) => [kind, digits(milliseconds), `${((100 * milliseconds) / total).toFixed(1)} %`]);
  const others = total - (kinds.get("linear layers") ?? 0) - (kinds.get("attention") ?? 0);
  const summary = `${digits((1000 * tokens) / total)} tokens a second; ${((100 * others) / total).toFixed(1)} % are neither linear layers nor attention.`;
  sections.push(`## ${basename(file)}\n\n${summary}\n\n${table(["operator", "ms", "share"], rows)}`);
}
writeReport("prompt-shares", {
  title: "Where the time of prompts goes",
  command: `node bench/prompt-shares.js ${files.map((file) => basename(file)).join(" ")} --tokens ${tokens}`,
  isPartial: true,
  sections: [
    `Prompts of ${tokens} random tokens, ${options.threads} threads, files kept as stored, f16 keys and values; the fastest of ${options.runs}.`,
    ...sections,
  ],
});
