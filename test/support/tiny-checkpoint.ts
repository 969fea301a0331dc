/** A checkpoint folder of a few kilobytes: a tied Llama decoder of random weights with the byte-level test tokenizer. */
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { Random } from "./random.ts";

const HIDDEN = 32;
const INTERMEDIATE = 64;
const LAYERS = 2;
const HEADS = 4;
const KV_HEADS = 2;
const HEAD_DIM = 8;
/** The tokenizer has as many. */
const VOCABULARY = 282;
export const TINY_CONTEXT = 64;
/** <|end|> of the tokenizer. */
const END = 277;

export const tinyConfig = {
  architectures: ["LlamaForCausalLM"],
  hidden_act: "silu",
  hidden_size: HIDDEN,
  intermediate_size: INTERMEDIATE,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  head_dim: HEAD_DIM,
  vocab_size: VOCABULARY,
  max_position_embeddings: TINY_CONTEXT,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: 276,
  eos_token_id: END,
};

const template =
  "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}" +
  "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/** Shapes by tensor name, as transformers stores them. */
export function tinyShapes(): Map<string, readonly number[]> {
  const shapes = new Map<string, readonly number[]>([
    ["model.embed_tokens.weight", [VOCABULARY, HIDDEN]],
    ["model.norm.weight", [HIDDEN]],
  ]);
  for (let i = 0; i < LAYERS; i++) {
    const layer = `model.layers.${i}`;
    shapes.set(`${layer}.input_layernorm.weight`, [HIDDEN]);
    shapes.set(`${layer}.post_attention_layernorm.weight`, [HIDDEN]);
    shapes.set(`${layer}.self_attn.q_proj.weight`, [HEADS * HEAD_DIM, HIDDEN]);
    shapes.set(`${layer}.self_attn.k_proj.weight`, [KV_HEADS * HEAD_DIM, HIDDEN]);
    shapes.set(`${layer}.self_attn.v_proj.weight`, [KV_HEADS * HEAD_DIM, HIDDEN]);
    shapes.set(`${layer}.self_attn.o_proj.weight`, [HIDDEN, HEADS * HEAD_DIM]);
    shapes.set(`${layer}.mlp.gate_proj.weight`, [INTERMEDIATE, HIDDEN]);
    shapes.set(`${layer}.mlp.up_proj.weight`, [INTERMEDIATE, HIDDEN]);
    shapes.set(`${layer}.mlp.down_proj.weight`, [HIDDEN, INTERMEDIATE]);
  }
  return shapes;
}

/** Writes the folder; `config` replaces fields of config.json, `shapes` the tensors. */
export async function writeTinyCheckpoint(
  folder: string,
  { config = {}, shapes = tinyShapes() }: { config?: object; shapes?: Map<string, readonly number[]> } = {},
): Promise<void> {
  await mkdir(folder, { recursive: true });
  const random = new Random(1);
  const entries = [...shapes].map(([name, shape]) => ({
    name,
    dtype: "f32" as const,
    shape,
    data: async () =>
      random.floats(
        shape.reduce((a, b) => a * b, 1),
        shape.length === 1 ? 1 : 0.4,
      ),
  }));
  await writeSafetensors(`${folder}/model.safetensors`, entries);
  await writeFile(`${folder}/config.json`, JSON.stringify({ ...tinyConfig, ...config }));
  const tokenizer = fileURLToPath(new URL("../../src/text/byte-level-tokenizer.json.golden", import.meta.url));
  await copyFile(tokenizer, `${folder}/tokenizer.json`);
  const tokens = { bos_token: "<|bos|>", eos_token: "<|end|>", chat_template: template };
  await writeFile(`${folder}/tokenizer_config.json`, JSON.stringify(tokens));
  await writeFile(`${folder}/generation_config.json`, JSON.stringify({ do_sample: false }));
}
