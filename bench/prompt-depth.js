/**
 * Prefill speed by position in a long prompt, compared with its first 512 tokens and with node-llama-cpp on the same weights;
 * then decode speed after the prompt, compared with the time to read its keys and values. Engines are loaded together and
 * compute their spans in turns. Times are elapsed times and CPU times: other work on the machine distorts the latter less.
 * Writes bench/results/prompt-depth.md.
 * `node bench/prompt-depth.js [--shapes 1b,qwen2.5-0.5b] [--threads 2] [--tokens 16384] [--peer-tokens 4096]`; 0 peer tokens:
 * no peer
 */
import { availableParallelism, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { EngineProcess } from "./engine-process.js";
import { ggufOf } from "./make-model.js";
import { programOf } from "./programs.js";
import { digits, table, writeReport } from "./report.js";
import { shapeNamed } from "./shapes.js";

const { values: options } = parseArgs({
  options: {
    shapes: { type: "string", default: "1b,qwen2.5-0.5b" },
    threads: { type: "string", default: String(availableParallelism()) },
    tokens: { type: "string", default: "16384" },
    "peer-tokens": { type: "string", default: "4096" },
    scheme: { type: "string", default: "4-bit g32" },
  },
});
const threads = Number(options.threads);
const tokens = Number(options.tokens);
const peerTokens = Number(options["peer-tokens"]);

/** Where spans end; those that the tables have are named by their begin. */
const ENDS = [512, 1500, 2000, 3072, 4096, 8192, 14000, 16000, 16384, 30720, 32720];
const REPORTED = [0, 1500, 3072, 14000, 30720];
/** Tokens that are decoded behind a prompt. */
const DECODED = 24;

const sections = [];
for (const shape of options.shapes.split(",")) {
  const cache = { contextLength: Math.max(tokens, 2000) + 2 * DECODED, kvCache: "f16" };
  const engines = [
    [
      "lowbit",
      tokens,
      await EngineProcess.start("ours", { path: await programOf(shape, options.scheme), threads, cache }),
    ],
  ];
  if (peerTokens > 0) {
    const path = await ggufOf(shape);
    const peer = await EngineProcess.start("peer-llama", { path, threads, contextLength: peerTokens + 2 * DECODED });
    engines.push(["node-llama-cpp", peerTokens, peer]);
  }
  const rows = engines.map(([name]) => ({ name, spans: new Map() }));
  for (const [i, end] of ENDS.entries())
    for (const [e, [, most, engine]] of engines.entries()) {
      if (end > most) continue;
      const from = ENDS[i - 1] ?? 0;
      const { seconds, processor } = await engine.ask({ what: "span", from, to: end });
      rows[e].spans.set(from, { wall: (end - from) / seconds, processor: (end - from) / processor });
      console.error(
        shape,
        rows[e].name,
        `${from}-${end}`,
        digits((end - from) / seconds),
        digits((end - from) / processor),
      );
    }
  const spans = REPORTED.filter((from) => rows[0].spans.has(from));
  const cells = ({ spans: found }, by) =>
    spans.map((from) => {
      const own = found.get(from);
      return own ? `${digits(own[by])} (${(own[by] / found.get(0)[by]).toFixed(2)})` : "";
    });
  const head = ["tokens a second", ...spans.map((from) => `${from} to ${ENDS[ENDS.indexOf(from) + 1] ?? ENDS[0]}`)];
  const body = rows.flatMap((row) => [
    [row.name, ...cells(row, "wall")],
    [`${row.name}, a second of processors`, ...cells(row, "processor")],
  ]);
  const { far, memory } = await engines[0][2].ask({ what: "decodedBehind", tokens: DECODED });
  const { layers, kvHeads, headDim } = shapeNamed(shape);
  const keys = (4 * layers * kvHeads * headDim * tokens) / 1e9;
  const near = (await engines[0][2].ask({ what: "decode", tokens: DECODED })).at(-1);
  const perToken = (seconds) => (1000 * seconds) / DECODED;
  const added = perToken(far) - perToken(near);
  const text =
    `A token decoded behind ${tokens} takes ${digits(perToken(far))} ms, ${digits(added)} more than at the beginning, for ${digits(keys)} GB of keys ` +
    `and values: ${digits(keys / (added / 1000))} GB/s, where reads of weights reach ${digits(memory / 1e9)}.`;
  sections.push({ title: shape, text: [table(head, body), text].join("\n\n") });
  for (const [, , engine] of engines) await engine.stop();
}
const load = loadavg()[0].toFixed(1);
const intro = `Tokens a second of spans of one prompt of random tokens, ${threads} threads, ${options.scheme}, keys and values of f16; in brackets beside its first 512. Load of the machine at the end: ${load}. [What bounds it](attention.md), and [the best that is possible](prompt-bounds.md).`;
console.log(intro);
writeReport("prompt-depth", {
  title: "Prompts by depth",
  command: `node bench/prompt-depth.js --shapes ${options.shapes} --threads ${threads} --tokens ${tokens} --peer-tokens ${peerTokens}`,
  sections: [intro, ...sections.map(({ title, text }) => `## ${title}\n\n${text}`)],
});
