/**
 * Folds column orders (GPTQ's act-order) of a gated MLP's last matrix into the rows of gate and up, which then give their
 * results in that order, so that nothing needs to be permuted in between.
 */
import type { Checkpoint } from "../../formats/contract.ts";
import { withMoves } from "../../formats/moved-weights.ts";
import type { LowBitTensor, TensorSource } from "../../formats/tensor-source.ts";
import type { Network } from "../../model/decoder.ts";
import { dequantize, pickRows, type QuantizedWeights } from "../../quantized.ts";

const DOWN = /^(.*)\.down_proj\.weight$/;
/** Tensors that such an MLP may have: a norm before the last matrix would have to be permuted, too. */
const PARTS = /^(gate|up|down)_proj\.(weight|bias)$/;

/** The checkpoint with the columns of such matrices in the order of their groups. */
export function withFoldedOrders(checkpoint: Checkpoint, { slots }: Network): Checkpoint {
  const { tensors } = checkpoint;
  const names = slots.map(({ name }) => name);
  /** New order of the rows of gate and up, and of the columns of down, by name. */
  const rows = new Map<string, Int32Array>();
  const columns = new Map<string, Int32Array>();
  for (const name of names) {
    const mlp = DOWN.exec(name)?.[1];
    const order = mlp !== undefined && tensors.has(name) ? tensors.lowBit?.(name)?.order : undefined;
    if (mlp === undefined || !order) continue;
    const parts = names.filter((part) => part.startsWith(`${mlp}.`));
    const gates = ["gate", "up"].map((part) => `${mlp}.${part}_proj.weight`);
    const isPlain = (part: string) => {
      const found = tensors.has(part) ? tensors.lowBit?.(part) : undefined;
      return found === null || (found !== undefined && !found.minima && !found.factored);
    };
    if (!gates.every((gate) => parts.includes(gate) && isPlain(gate))) continue;
    if (!parts.every((part) => PARTS.test(part.slice(mlp.length + 1)) && tensors.has(part))) continue;
    for (const part of parts) if (!part.startsWith(`${mlp}.down_proj.`)) rows.set(part, order);
    columns.set(name, order);
  }
  return columns.size === 0 ? checkpoint : { ...checkpoint, tensors: moved(tensors, rows, columns) };
}

function moved(
  tensors: TensorSource,
  rows: ReadonlyMap<string, Int32Array>,
  columns: ReadonlyMap<string, Int32Array>,
): TensorSource {
  const others = withMoves(tensors, (name) => {
    const [order, storedColumns] = [rows.get(name), columns.get(name)];
    if (order) return { storedRow: (row) => order[row]! };
    return storedColumns ? { storedColumns } : null;
  });
  /** Low-bit weights with their rows in the new order. */
  const lowBit = (name: string): LowBitTensor | null => {
    const found = tensors.lowBit?.(name) ?? null;
    const order = rows.get(name);
    if (found && order) return withRows(found, order);
    if (!found || !columns.has(name)) return found;
    const { order: _, ...inOrder } = found;
    return inOrder;
  };
  const readRows: TensorSource["readRows"] = async (name, first, count) => {
    const found = rows.has(name) ? lowBit(name) : null;
    if (!found) return others.readRows(name, first, count);
    return { dtype: "f32", shape: [count, found.spec.k], data: await floatRows(found, first, count) };
  };
  return {
    names: tensors.names,
    has: (name) => tensors.has(name),
    info: (name) => tensors.info(name),
    storedType: (name) => tensors.storedType?.(name) ?? tensors.info(name).dtype,
    lowBit,
    readRows,
    read(name) {
      const { shape } = tensors.info(name);
      return rows.has(name) && shape.length === 2 ? readRows(name, 0, shape[0]!) : others.read(name);
    },
  };
}

/** Row `r` of the result is row `order[r]`. The matrix is read once as a whole for all of its rows. */
function withRows({ rows, ...rest }: LowBitTensor, order: Int32Array): LowBitTensor {
  const { n } = rest.spec;
  let whole: Promise<QuantizedWeights> | null = null;
  return {
    ...rest,
    async rows(first, count) {
      whole ??= rows(0, n);
      const weights = await whole;
      if (first + count === n) whole = null;
      return pickRows(weights, order.subarray(first, first + count));
    },
  };
}

/** Float values of rows, with columns in the matrix's own order. */
async function floatRows(found: LowBitTensor, first: number, count: number): Promise<Float32Array> {
  const { order, spec } = found;
  const values = dequantize(await found.rows(first, count));
  if (!order) return values;
  const result = new Float32Array(values.length);
  for (let start = 0; start < values.length; start += spec.k)
    for (let c = 0; c < spec.k; c++) result[start + order[c]!] = values[start + c]!;
  return result;
}
