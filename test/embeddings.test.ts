/** Vectors of texts against those of sentence-transformers, by tiny random models of every family that embeds. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import { distance } from "./support/distance.ts";

const goldens = join(import.meta.dirname, "../../shared/golden/models-2026");
const families = ["bert-minilm", "bert-bge", "xlm-roberta-e5", "modernbert", "qwen3-embedding", "embeddinggemma"];

interface Golden {
  readonly items: readonly {
    readonly prompt_name: string | null;
    readonly text: string;
    readonly input_ids: readonly number[];
    readonly embedding: readonly number[];
  }[];
}

describe.skipIf(!existsSync(goldens))("vectors of sentence-transformers (skipped without ../shared)", () => {
  test.each(families)("%s", async (family) => {
    const folder = join(goldens, family);
    const { items } = JSON.parse(readFileSync(join(folder, "golden.json"), "utf8")) as Golden;
    const checkpoint = await loadCheckpoint(folder);
    onTestFinished(() => checkpoint.close());
    const model = await loadCompiled(checkpoint);
    onTestFinished(() => model.dispose());
    for (const { text, prompt_name: prompt, input_ids: ids, embedding } of items) {
      expect(model.embedding!.encode(text, { prompt, truncate: true })).toEqual(ids);
      const [vector] = await model.embed([text], { prompt, truncate: true });
      expect(distance(vector!, embedding).relative).toBeLessThan(1e-4);
    }
  });
});
