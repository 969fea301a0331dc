/** A Llama as plain loops in double precision: what a file's values give, also with activations of 8 bits. */
import type { Checkpoint } from "../../src/formats/contract.ts";
import type { LowBitTensor } from "../../src/formats/tensor-source.ts";
import { toFloat32 } from "../../src/tensor.ts";
import { quantizeInBlocks, quantizeRow } from "./linear-definition.ts";

type Row = readonly number[];

/** y = W x, W [n, k]. */
function multiply(weights: Float32Array, x: Row): number[] {
  const k = x.length;
  return Array.from({ length: weights.length / k }, (_, row) =>
    x.reduce((sum, value, c) => sum + value * weights[row * k + c]!, 0),
  );
}

function normalize(x: Row, weight: Float32Array, eps: number): number[] {
  const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length;
  return x.map((value, i) => (value / Math.sqrt(mean + eps)) * weight[i]!);
}

/** Heads of `dim` turned by the angles of a position, in halves. */
function turned(x: Row, dim: number, position: number, theta: number): number[] {
  const half = dim / 2;
  return x.map((value, i) => {
    const at = i % dim;
    const angle = position * theta ** (-(at % half) / half);
    const other = at < half ? -x[i + half]! : x[i - half]!;
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** Row t of causal attention over the keys and values so far, whose heads several of queries share. */
function attend(q: Row, keys: readonly Row[], values: readonly Row[], dim: number): number[] {
  const shared = q.length / keys[0]!.length;
  return Array.from({ length: q.length / dim }, (_, head) => {
    const from = Math.floor(head / shared) * dim;
    const scores = keys.map((key) => {
      let sum = 0;
      for (let c = 0; c < dim; c++) sum += q[head * dim + c]! * key[from + c]!;
      return Math.exp(sum / Math.sqrt(dim));
    });
    const total = scores.reduce((sum, score) => sum + score, 0);
    return Array.from({ length: dim }, (_, c) =>
      scores.reduce((sum, score, i) => sum + (score / total) * values[i]![from + c]!, 0),
    );
  }).flat();
}

interface LlamaConfig {
  readonly num_hidden_layers: number;
  readonly head_dim: number;
  readonly rms_norm_eps: number;
  readonly rope_theta?: number;
  readonly rope_parameters?: { readonly rope_theta: number };
}

/** A row rounded to 8 bits: one scale and zero point where the file says so, else a scale for each block. */
function roundedFor({ activations, spec, order }: LowBitTensor, row: Row): Row {
  if (activations === "int8_per_token") {
    const { q, scale, zero } = quantizeRow(row);
    return q.map((value) => scale * (value - zero));
  }
  const columns = order ? [...order] : row.map((_, c) => c);
  const { q, scales } = quantizeInBlocks(
    columns.map((c) => row[c]!),
    spec,
  );
  const result: number[] = [];
  for (const [i, c] of columns.entries()) result[c] = q[i]! * scales[i]!;
  return result;
}

/**
 * Logits after the last of `ids` by the values of a Llama's tensors. `rounded`: inputs of low-bit matrices are rounded to 8
 * bits as they meet them, in float32; all else is in doubles either way.
 */
export async function doubleLlama({ config, tensors }: Checkpoint, ids: Row, rounded: boolean): Promise<number[]> {
  const sizes = config as unknown as LlamaConfig;
  const { num_hidden_layers: layers, head_dim: dim, rms_norm_eps: eps } = sizes;
  const theta = sizes.rope_parameters?.rope_theta ?? sizes.rope_theta!;
  const read = async (name: string) => toFloat32(await tensors.read(`${name}.weight`));
  const linear = async (name: string, rows: readonly Row[]) => {
    const weights = await read(name);
    const stored = rounded ? tensors.lowBit?.(`${name}.weight`) : null;
    const inputs = stored ? rows.map((row) => roundedFor(stored, row.map(Math.fround))) : rows;
    return inputs.map((row) => multiply(weights, row));
  };
  const plus = (a: readonly Row[], b: readonly Row[]) => a.map((row, t) => row.map((value, i) => value + b[t]![i]!));
  const table = await read("model.embed_tokens");
  const hidden = table.length / (config.vocab_size as number);
  let x: readonly Row[] = ids.map((id) => [...table.subarray(id * hidden, (id + 1) * hidden)]);
  for (let layer = 0; layer < layers; layer++) {
    const name = `model.layers.${layer}`;
    const normed = async (rows: readonly Row[], part: string) => {
      const weight = await read(`${name}.${part}`);
      return rows.map((row) => normalize(row, weight, eps));
    };
    const input = await normed(x, "input_layernorm");
    const turn = async (part: string) =>
      (await linear(`${name}.self_attn.${part}`, input)).map((row, t) => turned(row, dim, t, theta));
    const [q, k] = [await turn("q_proj"), await turn("k_proj")];
    const v = await linear(`${name}.self_attn.v_proj`, input);
    const attended = q.map((row, t) => attend(row, k.slice(0, t + 1), v.slice(0, t + 1), dim));
    x = plus(x, await linear(`${name}.self_attn.o_proj`, attended));
    const middle = await normed(x, "post_attention_layernorm");
    const [gate, up] = [await linear(`${name}.mlp.gate_proj`, middle), await linear(`${name}.mlp.up_proj`, middle)];
    const gated = gate.map((row, t) => row.map((value, i) => (value / (1 + Math.exp(-value))) * up[t]![i]!));
    x = plus(x, await linear(`${name}.mlp.down_proj`, gated));
  }
  const last = normalize(x.at(-1)!, await read("model.norm"), eps);
  return (await linear("lm_head", [last]))[0]!;
}
