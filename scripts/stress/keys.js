/**
 * `npm run stress:keys -- --trials 1000`: timing attack on prefix caching: can an API key learn what another has asked? In each
 * trial one key sends a prompt, then the other sends the same prompt and a new one, in a random order. Fails if a token of
 * either was found in the cache, or if their times differ (rank-sum test, p <= 0.05); and if the times of the first key, which
 * finds its own prompt, do not differ.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startServer } from "../../test/serve/process.js";

const { values } = parseArgs({ options: { trials: { type: "string", default: "1000" }, model: { type: "string" } } });
const trials = Number(values.trials);
const model = values.model ?? "models/shakespeare";
const folder = mkdtempSync(join(tmpdir(), "lowbit-keys-"));
const WORDS = "king queen crown war peace night day sword love hate fool lord lady death life sea storm ship".split(
  " ",
);
const prompt = () => Array.from({ length: 120 }, () => WORDS[Math.floor(Math.random() * WORDS.length)]).join(" ");

/** Tokens with which two prompts of one key may begin by chance. */
const OWN_TOKENS = 8;

/** Mean rank of `a` among both, in standard deviations from what it is where they do not differ. */
function rankSum(a, b) {
  const all = [...a.map((ms) => ({ ms, isA: true })), ...b.map((ms) => ({ ms, isA: false }))];
  all.sort((x, y) => x.ms - y.ms);
  const sum = all.reduce((total, { isA }, rank) => total + (isA ? rank + 1 : 0), 0);
  const [n, m] = [a.length, b.length];
  return (sum - (n * (n + m + 1)) / 2) / Math.sqrt((n * m * (n + m + 1)) / 12);
}

/** Probability of at least so many standard deviations, on either side (Abramowitz and Stegun, 26.2.17). */
function probabilityOf(z) {
  const x = Math.abs(z);
  const t = 1 / (1 + 0.2316419 * x);
  const sum = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  return Math.min(1, (2 * Math.exp((-x * x) / 2) * sum) / Math.sqrt(2 * Math.PI));
}

const env = { LOWBIT_API_KEYS: "sk-anna,sk-ben" };
const server = await startServer(["--no-log", "--cache-dir", join(folder, "prefixes"), `demo=${model}`], env);

/** Asks for one token. @returns {Promise<{ ms: number, cached: number }>} */
async function ask(key, text) {
  const body = JSON.stringify({ model: "demo", prompt: text, max_tokens: 1, temperature: 0 });
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  const started = performance.now();
  const response = await fetch(`${server.url}/v1/completions`, { method: "POST", headers, body });
  const answer = await response.json();
  const ms = performance.now() - started;
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return { ms, cached: answer.usage.prompt_tokens_details.cached_tokens };
}

const times = { known: [], unknown: [], first: [], own: [] };
let found = 0;
try {
  for (let i = 0; i < trials; i++) {
    const text = prompt();
    times.first.push((await ask("sk-anna", text)).ms);
    const probes = [
      ["known", text],
      ["unknown", prompt()],
    ];
    if (Math.random() < 0.5) probes.reverse();
    for (const [name, asked] of probes) {
      const { ms, cached } = await ask("sk-ben", asked);
      times[name].push(ms);
      if (cached > OWN_TOKENS) found += cached;
    }
    times.own.push((await ask("sk-anna", text)).ms);
  }
} finally {
  await server.stop();
  rmSync(folder, { recursive: true });
}

const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)].toFixed(2);
const others = probabilityOf(rankSum(times.known, times.unknown));
const own = probabilityOf(rankSum(times.own, times.first));
console.log(
  `${trials} trials: ${found} tokens found across keys; ${median(times.known)} ms for what another key had asked, ` +
    `${median(times.unknown)} ms for what nobody had, p = ${others.toFixed(3)}; ` +
    `of one key, ${median(times.own)} ms again and ${median(times.first)} ms first, p = ${own.toExponential(1)}`,
);
if (found > 0 || others <= 0.05 || own > 0.05) process.exit(1);
