/**
 * Compares greedy decoding with and without lookup drafts, in turns: tasks that repeat their input, JSON and prose, on a model
 * of the caller's. With a GGUF file also llama.cpp's own lookup, if node-llama-cpp is installed.
 * `node bench/drafts.js model.gguf [--rounds 3] [--tokens 1200] [--tasks prose,JSON] [--alone]` → results/drafts.md; `--alone`:
 * without the peer.
 */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { basename } from "node:path";
import { parseArgs } from "node:util";
import { loadCheckpoint, loadCompiled, loadProgram } from "../dist/index.js";
import { EngineProcess } from "./engine-process.js";
import { digits, median, table, writeReport } from "./report.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "3" },
    tokens: { type: "string", default: "1200" },
    tasks: { type: "string", default: "" },
    show: { type: "boolean", default: false },
    alone: { type: "boolean", default: false },
  },
});
const [path] = positionals;
if (!path) throw new Error("expected a model: node bench/drafts.js model.gguf");

/** A file of this project, of which tasks have 100 lines. */
const FILE = "draft-length.ts";
const file = readFileSync(new URL(`../src/text/${FILE}`, import.meta.url), "utf8")
  .split("\n")
  .slice(0, 100)
  .join("\n");
const people =
  "Anna, 31, lives in Paris. Bob, 45, lives in Rome. Carl is 22 and from Oslo. Dora, 67, Lisbon. Emil, 19, Vienna.";

/** @typedef {import("../dist/index.js").ChatOptions} ChatOptions */
/** @typedef {import("../dist/index.js").Message} Message */
/** With `answer`, the model is held to it. @typedef {{ messages: Message[], how?: ChatOptions, answer?: Message }} Turn */

/** @param {string} content @param {ChatOptions} [how] @returns {Turn[]} */
const asked = (content, how) => [{ messages: [{ role: "user", content }], ...(how && { how }) }];

/** @param {string} name @param {string[]} names */
const tool = (name, ...names) => ({
  name,
  description: `${name}: as agents for code have it.`,
  parameters: {
    type: "object",
    properties: Object.fromEntries(names.map((argument) => [argument, { type: "string" }])),
    required: names,
    additionalProperties: false,
  },
});
const tools = [
  tool("Read", "file_path"),
  tool("Edit", "file_path", "old_string", "new_string"),
  tool("Write", "file_path", "content"),
  tool("Bash", "command", "description"),
];

/** An agent's conversation: a file is read, a class renamed by an edit, the file written again, its tests run. @returns {Message[]} */
function agentMessages() {
  const path = `src/text/${FILE}`;
  const lines = file.split("\n");
  const at = lines.findIndex((line) => line.includes("class Backoff"));
  const old = lines.slice(at - 1, at + 9).join("\n");
  const renamed = (/** @type {string} */ text) => text.replaceAll("Backoff", "Pause");
  /** @type {[string, object, string][]} */
  const calls = [
    ["Read", { file_path: path }, file],
    ["Edit", { file_path: path, old_string: old, new_string: renamed(old) }, "The file was edited."],
    ["Write", { file_path: path, content: renamed(file) }, "The file was written."],
    [
      "Bash",
      { command: `npx vitest run ${path.replace(".ts", ".test.ts")}`, description: "Run the tests" },
      "9 passed",
    ],
  ];
  return [
    { role: "system", content: "You are an agent that works on code with tools. Call one tool at a time." },
    { role: "user", content: `Rename the class Backoff in ${path} to Pause, everywhere. Then run the tests.` },
    ...calls.flatMap(([name, args, result], i) => [
      { role: "assistant", content: null, toolCalls: [{ id: `call_${i}`, name, arguments: JSON.stringify(args) }] },
      { role: "tool", toolCallId: `call_${i}`, content: result },
    ]),
    { role: "assistant", content: `I renamed \`Backoff\` to \`Pause\` in \`${path}\`. All 9 tests pass.` },
  ];
}

/** The recorded answers of a conversation, each with what comes before it. @param {Message[]} messages @returns {Turn[]} */
const recorded = (messages) =>
  [...messages.keys()]
    .filter((i) => messages[i].role === "assistant")
    .map((i) => ({ messages: messages.slice(0, i), answer: messages[i] }));

/** @type {Record<string, Turn[]>} */
const tasks = {
  "a file of 100 lines, one name changed": asked(
    `Rename the class \`Backoff\` to \`Pause\` in this file, and write the whole file again:\n\`\`\`ts\n${file}\n\`\`\``,
  ),
  "a file of 100 lines once more": asked(`Repeat this file exactly:\n\`\`\`ts\n${file}\n\`\`\``),
  "an agent's calls: read, edit, write, run, report": recorded(agentMessages()),
  "JSON of a text": asked(`Extract all people as a JSON list with name, age and city: ${people}`),
  "JSON of a text, held to a schema": asked(`Extract all people as a JSON list with name, age and city: ${people}`, {
    schema: {
      type: "array",
      items: {
        type: "object",
        properties: { name: { type: "string" }, age: { type: "integer" }, city: { type: "string" } },
        required: ["name", "age", "city"],
        additionalProperties: false,
      },
    },
  }),
  prose: asked("Tell a story about an old lighthouse keeper and a storm."),
};

const CONTEXT = 4096;
const checkpoint = path.endsWith(".pte") ? null : await loadCheckpoint(path);
const llm = checkpoint
  ? await loadCompiled(checkpoint, { contextLength: CONTEXT, threads: 2 })
  : await loadProgram(path, { threads: 2 });
await checkpoint?.close();
const peer =
  path.endsWith(".gguf") && !options.alone ? await EngineProcess.start("peer-llama", { path, threads: 2 }) : null;

/** @param {Turn} turn @param {ChatOptions} settings */
async function chat({ messages, how }, settings) {
  const { message, generation } = await llm.chat(messages, { ...how, ...settings }).result;
  return { text: message.content, generation };
}

/** The recorded answer once more, as the template writes it. @param {Turn} turn @param {ChatOptions} settings */
async function repeat(turn, settings) {
  const { prompt, ids } = recordedIds(turn);
  const constraint = /** @type {const} */ ({ kind: "choice", options: [llm.tokenizer.decode(ids)] });
  const stream = llm.generate(prompt, { ...settings, constraint });
  let text = "";
  for await (const piece of stream) text += piece;
  return { text, generation: await stream.result };
}

/** @param {Turn} turn */
function recordedIds({ messages, answer }) {
  const prompt = llm.encodeChat(messages, { tools });
  const next = answer.toolCalls ? [{ role: "tool", toolCallId: answer.toolCalls[0].id, content: "" }] : [];
  const rest = llm.encodeChat([...messages, answer, ...next], { tools }).slice(prompt.length);
  const end = rest.findIndex((id) => llm.eosIds.includes(id));
  return { prompt, ids: end < 0 ? rest : rest.slice(0, end) };
}

/** Answers of all turns with their times. @param {Turn[]} turns @param {"lookup" | "off"} draft @param {number} [most] */
async function answer(turns, draft, most = Number(options.tokens)) {
  const texts = [];
  const sums = { seconds: 0, generatedTokens: 0, draftedTokens: 0, acceptedTokens: 0 };
  for (const turn of turns) {
    const settings = { maxTokens: most, temperature: 0, draft };
    const { text, generation } = turn.answer ? await repeat(turn, settings) : await chat(turn, settings);
    texts.push(text);
    sums.seconds += generation.decodeSeconds;
    for (const name of /** @type {const} */ (["generatedTokens", "draftedTokens", "acceptedTokens"]))
      sums[name] += generation[name];
  }
  return { text: JSON.stringify(texts), ...sums, ms: (1000 * sums.seconds) / (sums.generatedTokens - turns.length) };
}

/** How many times as fast the peer's own lookup makes it. @param {Turn[]} turns */
async function peerRatio(turns) {
  let [off, lookup] = [0, 0];
  for (const { messages, answer } of turns) {
    const prompt = llm.encodeChat(messages, answer && { tools });
    const found = await peer.ask({ what: "lookup", prompt, tokens: Number(options.tokens), contextSize: CONTEXT });
    off += found.off * found.count;
    lookup += found.lookup * found.count;
  }
  return off / lookup;
}

const rows = [];
const chosen = options.tasks.split(",");
for (const [name, turns] of Object.entries(tasks)) {
  if (!chosen.some((part) => name.includes(part))) continue;
  /** @type {number[][]} */
  const times = [];
  /** @type {number[]} */
  const peers = [];
  let counts = "";
  // Both ways find the prompts computed.
  await answer(turns, "off", 1);
  for (let round = 0; round < Number(options.rounds); round++) {
    const off = await answer(turns, "off");
    const lookup = await answer(turns, "lookup");
    if (off.text !== lookup.text) throw new Error(`${name}: the text with drafts is another`);
    if (round === 0 && options.show) console.log(off.text);
    times.push([off.ms, lookup.ms]);
    if (peer) peers.push(await peerRatio(turns));
    const { generatedTokens, draftedTokens, acceptedTokens } = lookup;
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
  console.log(rows.at(-1).join("  "));
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
