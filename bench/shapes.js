/** Shapes of models whose speed is measured: real dimensions, random weights. Data only. */

/**
 * @typedef {object} Shape
 * @property {number} layers
 * @property {number} hidden
 * @property {number} intermediate
 * @property {number} heads
 * @property {number} kvHeads
 * @property {number} headDim
 * @property {number} vocabulary
 * @property {boolean} tied
 * @property {number} ropeTheta
 * @property {number} [positions] That the model may be run with, where they are not CONTEXT_LENGTH.
 */

/** Llama-3.1-8B. @type {Shape} */
const llama8b = {
  layers: 32,
  hidden: 4096,
  intermediate: 14336,
  heads: 32,
  kvHeads: 8,
  headDim: 128,
  vocabulary: 128256,
  tied: false,
  ropeTheta: 500000,
};

/** @type {Readonly<Record<string, Shape>>} */
export const shapes = {
  // Llama-3.2-1B.
  "1b": {
    layers: 16,
    hidden: 2048,
    intermediate: 8192,
    heads: 32,
    kvHeads: 8,
    headDim: 64,
    vocabulary: 128256,
    tied: true,
    ropeTheta: 500000,
    positions: 32768,
  },
  // stories110M.
  "110m": {
    layers: 12,
    hidden: 768,
    intermediate: 2048,
    heads: 12,
    kvHeads: 12,
    headDim: 64,
    vocabulary: 32000,
    tied: true,
    ropeTheta: 10000,
  },
  // SmolLM2-135M.
  smollm2: {
    layers: 30,
    hidden: 576,
    intermediate: 1536,
    heads: 9,
    kvHeads: 3,
    headDim: 64,
    vocabulary: 49152,
    tied: true,
    ropeTheta: 100000,
    positions: 16384,
  },
  // Qwen2.5-0.5B, without the biases of its attention.
  "qwen2.5-0.5b": {
    layers: 24,
    hidden: 896,
    intermediate: 4864,
    heads: 14,
    kvHeads: 2,
    headDim: 64,
    vocabulary: 151936,
    tied: true,
    ropeTheta: 1000000,
    positions: 65536,
  },
  "8b": llama8b,
  "8b-8": { ...llama8b, layers: 8 },
  "8b-cut": { ...llama8b, layers: 4 },
};

/** Positions that the models may be run with. */
export const CONTEXT_LENGTH = 4096;

/** @param {string} name @returns {Shape} */
export function shapeNamed(name) {
  const shape = shapes[name];
  if (!shape) throw new RangeError(`shape "${name}": expected one of ${Object.keys(shapes).join(", ")}`);
  return shape;
}

/**
 * The weights of a shape, in the names of Hugging Face and of GGUF. Norms are vectors of ones, matrices are [n, k].
 * @param {Shape} shape
 * @returns {{ name: string, gguf: string, size: number[] }[]}
 */
export function tensorsOf({ layers, hidden, intermediate, heads, kvHeads, headDim, vocabulary, tied }) {
  const tensor = (name, gguf, ...size) => ({ name: `${name}.weight`, gguf: `${gguf}.weight`, size });
  const block = (i) => {
    const [name, gguf] = [`model.layers.${i}`, `blk.${i}`];
    return [
      tensor(`${name}.input_layernorm`, `${gguf}.attn_norm`, hidden),
      tensor(`${name}.self_attn.q_proj`, `${gguf}.attn_q`, heads * headDim, hidden),
      tensor(`${name}.self_attn.k_proj`, `${gguf}.attn_k`, kvHeads * headDim, hidden),
      tensor(`${name}.self_attn.v_proj`, `${gguf}.attn_v`, kvHeads * headDim, hidden),
      tensor(`${name}.self_attn.o_proj`, `${gguf}.attn_output`, hidden, heads * headDim),
      tensor(`${name}.post_attention_layernorm`, `${gguf}.ffn_norm`, hidden),
      tensor(`${name}.mlp.gate_proj`, `${gguf}.ffn_gate`, intermediate, hidden),
      tensor(`${name}.mlp.up_proj`, `${gguf}.ffn_up`, intermediate, hidden),
      tensor(`${name}.mlp.down_proj`, `${gguf}.ffn_down`, hidden, intermediate),
    ];
  };
  return [
    tensor("model.embed_tokens", "token_embd", vocabulary, hidden),
    ...Array.from({ length: layers }, (_, i) => block(i)).flat(),
    tensor("model.norm", "output_norm", hidden),
    ...(tied ? [] : [tensor("lm_head", "output", vocabulary, hidden)]),
  ];
}
