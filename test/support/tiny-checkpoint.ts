/** A checkpoint folder of some kilobytes: a Llama decoder of random weights with the byte-level test tokenizer. */
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { f32ToBf16, f32ToF16 } from "../../src/half.ts";
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

/** A template that has tools, their calls as Hermes writes them, and thinking. */
export const toolTemplate = `{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|user|>{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}<|assistant|>{% if enable_thinking is defined and enable_thinking %}<think>
{% elif enable_thinking is defined %}<think>

</think>

{% endif %}`;

const template =
  "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}" +
  "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/** Fields of config.json to replace; those that size tensors size them here too. */
export type TinyConfig = Partial<typeof tinyConfig> & {
  readonly attention_bias?: boolean;
  readonly mlp_bias?: boolean;
};

type Shapes = Map<string, readonly number[]>;

/** Shapes by tensor name, as transformers stores them. */
export function tinyShapes(changes: TinyConfig = {}): Shapes {
  const config = { ...tinyConfig, ...changes };
  const { hidden_size: hidden, intermediate_size: intermediate, head_dim: headDim } = config;
  const q = config.num_attention_heads * headDim;
  const kv = config.num_key_value_heads * headDim;
  const shapes: Shapes = new Map([
    ["model.embed_tokens.weight", [config.vocab_size, hidden]],
    ["model.norm.weight", [hidden]],
  ]);
  const linear = (name: string, n: number, k: number, bias: boolean | undefined) => {
    shapes.set(`${name}.weight`, [n, k]);
    if (bias) shapes.set(`${name}.bias`, [n]);
  };
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = `model.layers.${i}`;
    shapes.set(`${layer}.input_layernorm.weight`, [hidden]);
    shapes.set(`${layer}.post_attention_layernorm.weight`, [hidden]);
    linear(`${layer}.self_attn.q_proj`, q, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.k_proj`, kv, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.v_proj`, kv, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.o_proj`, hidden, q, changes.attention_bias);
    linear(`${layer}.mlp.gate_proj`, intermediate, hidden, changes.mlp_bias);
    linear(`${layer}.mlp.up_proj`, intermediate, hidden, changes.mlp_bias);
    linear(`${layer}.mlp.down_proj`, hidden, intermediate, changes.mlp_bias);
  }
  if (!config.tie_word_embeddings) shapes.set("lm_head.weight", [config.vocab_size, hidden]);
  return shapes;
}

export interface TinyOptions {
  readonly config?: TinyConfig & { readonly [field: string]: unknown };
  /** Tensors to write, by default those of `config`. */
  readonly shapes?: Shapes;
  readonly dtype?: "f32" | "f16" | "bf16";
  /** By default one that has neither tools nor thinking. */
  readonly chatTemplate?: string;
  /** Changes the values of a tensor before they are written. */
  readonly edit?: (name: string, values: Float32Array) => void;
}

/** Writes the folder. */
export async function writeTinyCheckpoint(folder: string, options: TinyOptions = {}): Promise<void> {
  const { config = {}, shapes = tinyShapes(config), dtype = "f32", chatTemplate = template, edit } = options;
  await mkdir(folder, { recursive: true });
  const random = new Random(1);
  const entries = [...shapes].map(([name, shape]) => ({
    name,
    dtype,
    shape,
    data: async () => {
      const count = shape.reduce((a, b) => a * b, 1);
      const values = random.floats(count, shape.length === 1 ? 1 : 0.4);
      edit?.(name, values);
      return encode(values, dtype);
    },
  }));
  await writeSafetensors(`${folder}/model.safetensors`, entries);
  await writeFile(`${folder}/config.json`, JSON.stringify({ ...tinyConfig, ...config }));
  const tokenizer = fileURLToPath(new URL("../../src/text/byte-level-tokenizer.json.golden", import.meta.url));
  await copyFile(tokenizer, `${folder}/tokenizer.json`);
  const tokens = { bos_token: "<|bos|>", eos_token: "<|end|>", chat_template: chatTemplate };
  await writeFile(`${folder}/tokenizer_config.json`, JSON.stringify(tokens));
  await writeFile(`${folder}/generation_config.json`, JSON.stringify({ do_sample: false }));
}

function encode(values: Float32Array, dtype: "f32" | "f16" | "bf16"): Float32Array | Uint16Array {
  if (dtype === "f32") return values;
  return Uint16Array.from(values, dtype === "f16" ? f32ToF16 : f32ToBf16);
}
