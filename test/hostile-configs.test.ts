/** Every field of config.json of every kind of layer, as strangers could set it: an error that names a file, or a model that runs. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LowbitError } from "../src/errors.ts";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { hybridConfigs, mixtureConfigs, writeDecoderCheckpoint } from "./support/hybrid-checkpoint.ts";

type Config = Readonly<Record<string, unknown>>;

const base = hybridConfigs.gemma4;
const configs: Readonly<Record<string, Config>> = {
  ...hybridConfigs,
  ...mixtureConfigs,
  gemma4_moe: {
    ...base,
    hidden_size_per_layer_input: 0,
    num_kv_shared_layers: 0,
    enable_moe_block: true,
    moe_intermediate_size: 32,
    num_experts: 4,
    top_k_experts: 2,
  },
  qwen3_5_moe: {
    ...hybridConfigs.qwen3_5,
    architectures: ["Qwen3_5MoeForCausalLM"],
    num_experts: 4,
    num_experts_per_tok: 2,
    moe_intermediate_size: 32,
    shared_expert_intermediate_size: 32,
  },
  lfm2_moe: {
    ...hybridConfigs.lfm2,
    architectures: ["Lfm2MoeForCausalLM"],
    num_experts: 4,
    num_experts_per_tok: 2,
    num_dense_layers: 1,
    moe_intermediate_size: 32,
  },
};

const numbers = [0, -1, 0.5, 3, 7, 255, 4096, 2 ** 20, 2 ** 30, 2 ** 31, 2 ** 32 + 4, 2 ** 53, 1e300, -1e300];
const others = [null, "", "x", true, [], {}, [2 ** 31], new Array(5000).fill("full_attention")];
/** What a field says otherwise; of a list, also others of its length. */
const changesOf = (value: unknown): readonly unknown[] => [
  ...numbers,
  ...others,
  ...(Array.isArray(value) ? [value.slice(1), [...value, ...value], value.toReversed(), value.map(() => 2 ** 31)] : []),
];

describe.each(Object.entries(configs))("%s", (name, config) => {
  it("is refused with an error, or runs", async () => {
    const folder = join(await temporaryFolder(), name);
    await writeDecoderCheckpoint(folder, { ...config, max_position_embeddings: 32 });
    const run = async (changed: Config) => {
      await writeFile(join(folder, "config.json"), JSON.stringify(changed));
      const model = await loadCheckpoint(folder);
      try {
        const llm = await loadCompiled(model, { threads: 1 });
        for await (const _ of llm.generate([5, 6], { maxTokens: 1 }));
        await llm.dispose();
      } finally {
        await model.close();
      }
    };
    await run({ ...config, max_position_embeddings: 32 });
    for (const field of Object.keys(config))
      for (const value of changesOf(config[field])) {
        const changed = { ...config, max_position_embeddings: 32, [field]: value };
        const what = `${field}: ${JSON.stringify(value)?.slice(0, 60)}`;
        const start = performance.now();
        const error = await run(changed).catch((error: unknown) => error);
        if (performance.now() - start > 1500) console.log(`SLOW ${name} ${what}: ${performance.now() - start}`);
        if (error !== undefined && !(error instanceof LowbitError)) console.log(`RAW ${name} ${what}`, error);
        if (error !== undefined) expect(error, what).toBeInstanceOf(LowbitError);
      }
  }, 240_000);
});
