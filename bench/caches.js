/**
 * What caches of int8 and int4 cost a text beside one of f16: KL divergence and perplexity of the next token, on real models'
 * own files with float activations.
 * `node bench/caches.js [--models smollm2,qwen,gemma] [--caches int8,int4] [--window 4096] [--tokens 4096] [--text prose|code]` →
 * results/caches.md, where a run replaces its own sections
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadCheckpoint, loadCompiled } from "../dist/index.js";
import { compareEach } from "../dist/language/compare.js";
import { modelFiles, texts } from "./accuracy-files.js";
import { digits, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    models: { type: "string", default: "smollm2,qwen,gemma" },
    caches: { type: "string", default: "int8,int4" },
    /** Tokens that a prediction may look back at. */
    window: { type: "string", default: "4096" },
    /** Tokens of the text: by default one window. */
    tokens: { type: "string" },
    text: { type: "string", default: "prose" },
  },
});
const window = Number(options.window);
const maxTokens = Number(options.tokens ?? window);
/** Characters that are tokenized for each token that is read. */
const CHARACTERS = 8;
const text = readFileSync(texts()[options.text].test, "utf8").slice(0, CHARACTERS * maxTokens);

async function withCache(file, kvCache) {
  const model = await loadCheckpoint(file);
  model.activations = "float";
  return loadCompiled(model, { contextLength: window, kvCache, cacheBytes: 2 ** 33 });
}

const TYPES = options.caches.split(",");
for (const name of options.models.split(",")) {
  const { original } = await modelFiles(name);
  const [reference, ...models] = await Promise.all(["f16", ...TYPES].map((type) => withCache(original, type)));
  const found = await compareEach(models, reference, text, { window, stride: window - 1, maxTokens });
  for (const model of [reference, ...models]) await model.dispose();
  const percent = (share) => `${share > 0 ? "+" : ""}${(100 * share).toFixed(2)}`;
  const rows = found.map((figures, i) => [
    ...[TYPES[i], `${digits(figures.divergence.mean)} ± ${digits(figures.divergence.standardError)}`],
    ...[(100 * figures.topAgreement).toFixed(1), figures.perplexity.toFixed(3)],
    `${percent(figures.perplexityRatio - 1)} ± ${(100 * figures.perplexityRatioError).toFixed(2)}`,
  ]);
  const [{ tokens, referencePerplexity }] = found;
  const part = tokens < window ? "" : `, ${tokens} tokens`;
  writeReport("caches", {
    title: "Caches of keys and values in few bits, beside f16",
    command: `node bench/caches.js --models ${name} --window ${window} --text ${options.text}`,
    sections: [
      "Models' own files with float activations; prose is the second half of the Debian handbook, code Python's library. Standard errors take tokens as independent.",
      `## ${name}, ${options.text}, windows of ${window}${part}\n\nPerplexity with f16: ${referencePerplexity.toFixed(3)}.\n\n${table(
        ["cache", "KL, nats", "same top, %", "perplexity", "beside f16, %"],
        rows,
      )}`,
    ],
    isPartial: true,
  });
}
