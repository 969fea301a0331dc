/** The tensors of a GGUF file under the names and in the order of rows that Hugging Face checkpoints have. */
import { InvalidFileError } from "../../errors.ts";
import { groupCount, type QuantizedWeights } from "../../quantized.ts";
import { elementCount, type Tensor, toFloat32 } from "../../tensor.ts";
import type { LowBitTensor, OpenTensors } from "../tensor-source.ts";
import { architectureOf } from "./config.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const whole: Readonly<Record<string, string>> = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
};

const parts: Readonly<Record<string, string>> = {
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_qkv: "self_attn.qkv_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
};

/** Hugging Face's name of a tensor; null for those that belong to no layer, such as rope factors. */
function modelName(name: string, other: Readonly<Record<string, string>>): string | null {
  const [, base = "", ending = ""] = /^(.+)\.(weight|bias)$/.exec(name) ?? [];
  const [, layer, part = ""] = /^blk\.(\d+)\.(.+)$/.exec(base) ?? [];
  if (layer === undefined) return whole[base] ? `${whole[base]}.${ending}` : null;
  const module = other[part] ?? parts[part];
  return module ? `model.layers.${layer}.${module}.${ending}` : null;
}

/** Where row `row` of a matrix whose heads are halves is among rows that pair neighbours, for heads of `headDim` rows. */
function storedRow(row: number, headDim: number): number {
  const half = headDim / 2;
  const within = row % headDim;
  return row - within + 2 * (within % half) + Math.floor(within / half);
}

/** Renamed, with norms less what was added to them, and with queries and keys turned back to halves. */
export function modelTensors(metadata: GgufMetadata, tensors: GgufTensors, headDim: number): OpenTensors {
  const { names, interleaved, normOffset } = architectureOf(metadata);
  const stored = new Map<string, string>();
  for (const name of tensors.names) {
    const model = modelName(name, names);
    if (model !== null) stored.set(model, name);
  }
  const nameOf = (name: string): string => {
    const found = stored.get(name);
    if (found === undefined) throw new InvalidFileError(metadata.file, `has no tensor for ${name}`);
    return found;
  };
  const isTurned = (name: string) => interleaved && /\.[qk]_proj\./.test(name);
  const isShifted = (name: string) => normOffset !== 0 && /norm\.weight$/.test(name);
  const finish = (name: string, tensor: Tensor): Tensor => {
    const turned = isTurned(name) ? turnRows(tensor, headDim) : tensor;
    if (!isShifted(name)) return turned;
    return { ...turned, dtype: "f32", data: toFloat32(turned).map((value) => value - normOffset) };
  };
  return {
    names: [...stored.keys()],
    has: (name) => stored.has(name),
    info(name) {
      const info = tensors.info(nameOf(name));
      return isShifted(name) ? { ...info, dtype: "f32" } : info;
    },
    storedType: (name) => tensors.storedType(nameOf(name)),
    read: async (name) => finish(name, await tensors.read(nameOf(name))),
    async readRows(name, firstRow, rowCount) {
      if (!isTurned(name)) return finish(name, await tensors.readRows(nameOf(name), firstRow, rowCount));
      // Whole heads hold the rows, in another order.
      const first = Math.floor(firstRow / headDim) * headDim;
      const last = Math.ceil((firstRow + rowCount) / headDim) * headDim;
      const heads = turnRows(await tensors.readRows(nameOf(name), first, last - first), headDim);
      const columns = elementCount(heads.shape.slice(1));
      const data = heads.data.slice((firstRow - first) * columns, (firstRow - first + rowCount) * columns);
      return { ...heads, shape: [rowCount, ...heads.shape.slice(1)], data };
    },
    lowBit(name) {
      const found = tensors.lowBit(nameOf(name));
      return found && isTurned(name) ? turnedLowBit(found, headDim) : found;
    },
    close: () => tensors.close(),
  };
}

function turnRows(tensor: Tensor, headDim: number): Tensor {
  const rows = tensor.shape[0]!;
  const columns = elementCount(tensor.shape.slice(1));
  return { ...tensor, data: turned(tensor.data as Float32Array, rows, columns, headDim) };
}

function turned<A extends Float32Array | Int8Array>(values: A, rows: number, columns: number, headDim: number): A {
  const result = values.slice() as A;
  for (let row = 0; row < rows; row++) {
    const from = storedRow(row, headDim) * columns;
    result.set(values.subarray(from, from + columns), row * columns);
  }
  return result;
}

function turnedLowBit(tensor: LowBitTensor, headDim: number): LowBitTensor {
  const { n, k } = tensor.spec;
  return {
    ...tensor,
    async read(): Promise<QuantizedWeights> {
      const weights = await tensor.read();
      return {
        ...weights,
        qvals: turned(weights.qvals, n, k, headDim),
        scales: turned(weights.scales, n, groupCount(weights), headDim),
      };
    },
  };
}
