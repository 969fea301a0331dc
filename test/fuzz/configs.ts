/** Checkpoints whose config.json and generation_config.json say anything: each is loaded, compiled and run for two tokens. */
import { copyFile, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadCheckpoint, loadCompiled } from "../../src/index.ts";
import type { Random } from "../support/random.ts";
import { tinyConfig, writeTinyCheckpoint } from "../support/tiny-checkpoint.ts";
import type { Fuzzer } from "./child.ts";
import { changeJson, jsonText } from "./json-changes.ts";

/** Fields that other architectures have, and what they may hold. */
const more: Readonly<Record<string, unknown>> = {
  sliding_window: 8,
  layer_types: ["sliding_attention", "full_attention"],
  rope_scaling: {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 16,
  },
  quantization_config: { quant_method: "awq", bits: 4, group_size: 128 },
  head_dim: 8,
  hidden_activation: "gelu_pytorch_tanh",
  partial_rotary_factor: 0.5,
  attention_bias: false,
  num_experts: 4,
  text_config: { hidden_size: 32 },
};
const architectures = [
  "LlamaForCausalLM",
  "Qwen3ForCausalLM",
  "Gemma2ForCausalLM",
  "Phi3ForCausalLM",
  "GraniteForCausalLM",
  "X",
];

export const fuzzConfigs: Fuzzer = async (keep) => {
  const folder = await mkdtemp(join(tmpdir(), "lowbit-fuzz-"));
  await writeTinyCheckpoint(folder, { config: { num_hidden_layers: 2, max_position_embeddings: 32 } });
  const generation = { do_sample: false, temperature: 0.7, top_k: 5, max_new_tokens: 3, eos_token_id: [277] };
  return async (random, seed) => {
    const base: Record<string, unknown> = { ...tinyConfig, max_position_embeddings: 32 };
    for (const [field, value] of Object.entries(more)) if (random.next() < 0.15) base[field] = value;
    if (random.next() < 0.2) base.architectures = [random.pick(architectures)];
    const config = jsonText(random.next() < 0.1 ? changeJson(base, random) : changeFields(base, random));
    await writeFile(join(folder, "config.json"), config);
    await writeFile(
      join(folder, "generation_config.json"),
      jsonText(random.next() < 0.1 ? changeJson(generation, random) : changeFields(generation, random)),
    );
    if (keep !== null) await copyFile(join(folder, "config.json"), join(keep, `configs-${seed}.json`));
    const model = await loadCheckpoint(folder);
    try {
      const llm = await loadCompiled(model, { threads: 1 });
      try {
        for await (const _ of llm.generate([5, 6], { maxTokens: 2 }));
      } finally {
        await llm.dispose();
      }
    } finally {
      await model.close();
    }
  };
};

/** One or two fields with other values; the document stays an object. */
function changeFields(base: Readonly<Record<string, unknown>>, random: Random): unknown {
  const changed = { ...base };
  for (let changes = random.integer(0, 2); changes > 0; changes--) {
    const field = random.pick(Object.keys(changed));
    changed[field] = (changeJson({ [field]: changed[field] }, random, [], 1) as Record<string, unknown> | null)?.[
      field
    ];
  }
  return changed;
}
