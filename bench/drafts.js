/**
 * Decoding with drafts that are looked up, beside decoding without, in turns: tasks that repeat what they read, JSON and prose,
 * greedy, on a model of the caller's; of a GGUF file beside llama.cpp's own lookup, too, where node-llama-cpp is installed.
 * `node bench/drafts.js model.gguf [--rounds 3] [--tokens 220]` → results/drafts.md
 */
import { loadavg } from "node:os";
import { basename } from "node:path";
import { parseArgs } from "node:util";
import { loadCheckpoint, loadCompiled, loadProgram } from "../dist/index.js";
import { EngineProcess } from "./engine-process.js";
import { digits, median, table, writeReport } from "./report.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: "string", default: "3" }, tokens: { type: "string", default: "220" } },
});
const [path] = positionals;
if (!path) throw new Error("expected a model: node bench/drafts.js model.gguf");

const file = `function total(items) {
  let sum = 0;
  for (const item of items) {
    if (item.price > 0) {
      sum += item.price * item.count;
    }
  }
  return sum;
}

function average(items) {
  if (items.length === 0) {
    return 0;
  }
  return total(items) / items.length;
}

function largest(items) {
  let best = null;
  for (const item of items) {
    if (best === null || item.price > best.price) {
      best = item;
    }
  }
  return best;
}
`;
const people =
  "Anna, 31, lives in Paris. Bob, 45, lives in Rome. Carl is 22 and from Oslo. Dora, 67, Lisbon. Emil, 19, Vienna.";
/** @type {Record<string, string>} */
const tasks = {
  "a file, one name changed": `Rename the variable \`sum\` to \`amount\` in this file, and write the whole file again:\n\`\`\`js\n${file}\`\`\``,
  "a file once more": `Repeat this file exactly:\n\`\`\`js\n${file}\`\`\``,
  "JSON of a text": `Extract all people as a JSON list with name, age and city: ${people}`,
  prose: "Tell a story about an old lighthouse keeper and a storm.",
};

const CONTEXT = 4096;
const checkpoint = path.endsWith(".pte") ? null : await loadCheckpoint(path);
const llm = checkpoint
  ? await loadCompiled(checkpoint, { contextLength: CONTEXT, threads: 2 })
  : await loadProgram(path, { threads: 2 });
await checkpoint?.close();
const peer = path.endsWith(".gguf") ? await EngineProcess.start("peer-llama", { path, threads: 2 }) : null;

/** @param {string} content @param {"lookup" | "off"} draft */
async function answer(content, draft) {
  const maxTokens = Number(options.tokens);
  const { message, generation } = await llm.chat([{ role: "user", content }], { maxTokens, temperature: 0, draft })
    .result;
  return {
    text: message.content,
    generation,
    ms: (1000 * generation.decodeSeconds) / (generation.generatedTokens - 1),
  };
}

const rows = [];
for (const [name, content] of Object.entries(tasks)) {
  /** @type {number[][]} */
  const times = [];
  /** @type {number[]} */
  const peers = [];
  let counts = "";
  for (let round = 0; round < Number(options.rounds); round++) {
    const off = await answer(content, "off");
    const lookup = await answer(content, "lookup");
    if (off.text !== lookup.text) throw new Error(`${name}: the text with drafts is another`);
    times.push([off.ms, lookup.ms]);
    const prompt = llm.encodeChat([{ role: "user", content }]);
    const other = await peer?.ask({ what: "lookup", prompt, tokens: Number(options.tokens), contextSize: CONTEXT });
    if (other) peers.push(other.off / other.lookup);
    const { generatedTokens, draftedTokens, acceptedTokens } = lookup.generation;
    counts = `${generatedTokens}, ${draftedTokens}, ${acceptedTokens}`;
  }
  const ratios = times.map(([off, lookup]) => off / lookup);
  const [off, lookup] = [0, 1].map((i) => digits(median(times.map((pair) => pair[i]))));
  rows.push([
    name,
    off,
    lookup,
    `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`,
    counts,
    peers.length > 0 ? digits(median(peers)) : "–",
  ]);
}
await llm.dispose();
await peer?.stop();

writeReport("drafts", {
  title: "Decoding with drafts",
  command: `node bench/drafts.js ${basename(path)} --rounds ${options.rounds} --tokens ${options.tokens}`,
  sections: [
    `Milliseconds a token of greedy answers, the median of ${options.rounds} rounds in which both ways took turns, and how many times as fast drafts are (all rounds lie between the figures in brackets). Texts are the same, which the script checks. At the end ${loadavg()[0].toFixed(1)} threads wanted the cores.`,
    table(
      ["task", "without", "with drafts", "times as fast", "tokens, drafted, accepted", "llama.cpp's lookup, times"],
      rows,
    ),
  ],
});
