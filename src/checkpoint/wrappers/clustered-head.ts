/** Heads of Gemma 4's smaller assistants, which have a row for each token: their rows in the order of the clusters of tokens. */
import { InvalidFileError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { withMoves } from "../../formats/moved-weights.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import type { LowBitTensor, TensorSource } from "../../formats/tensor-source.ts";
import { ASSISTANT_HEAD, clusterModules } from "../../model/assistant.ts";
import { rangeOfWeights } from "../../quantized.ts";
import { rangeOfTensor, type Tensor, toFloat32 } from "../../tensor.ts";
import { readingWhole } from "../../whole-reads.ts";

const CENTROIDS = `${clusterModules.centroids}.weight`;
const STORED_HEAD = `${ASSISTANT_HEAD}.weight`;
const HEAD = `${clusterModules.head}.weight`;
const { ordering: ORDERING } = clusterModules;

/** Whether a tensor is one of those by which an assistant finds clusters. */
const isOfClusters = (name: string) => name === CENTROIDS || name === ORDERING;

/**
 * An assistant's tensors, the head's rows by cluster where its config says that it has clusters. InvalidFileError, naming the
 * model that it is to draft for, where it lacks their tensors or the order of tokens is none.
 */
export async function clusteredTensors({ config, folder, tensors }: Checkpoint, target: string): Promise<TensorSource> {
  if (config.use_ordered_embeddings !== true)
    return renamedTensors(tensors, (name) => (isOfClusters(name) ? null : name));
  const refuse = (why: string): never => {
    throw new InvalidFileError(folder, `does not draft for ${target}: ${why}`);
  };
  const lacking = [CENTROIDS, ORDERING, STORED_HEAD].filter((name) => !tensors.has(name));
  if (lacking.length > 0) refuse(`use_ordered_embeddings: lacks tensor ${lacking.join(" and ")}`);
  const order = numbersOf(await tensors.read(ORDERING));
  const wrong = faultOf(order, tensors.info(STORED_HEAD).shape[0] ?? 0);
  if (wrong !== null) refuse(`tensor ${ORDERING}: ${wrong}`);
  const renamed = renamedTensors(tensors, (name) => (name === STORED_HEAD ? HEAD : name));
  const moved = withMoves(withWholeHead(renamed), (name) =>
    name === HEAD ? { storedRow: (row) => order[row]! } : null,
  );
  const vector: Tensor = { dtype: "f32", shape: [order.length], data: order };
  return {
    ...moved,
    info: (name) => (name === ORDERING ? vector : moved.info(name)),
    read: async (name) => (name === ORDERING ? { ...vector, data: order.slice() } : moved.read(name)),
  };
}

/** The tensors, of which the head is read whole: rows of a cluster lie anywhere, and each is too short to be read by itself. */
function withWholeHead(tensors: TensorSource): TensorSource {
  const [n = 0] = tensors.info(HEAD).shape;
  const rowsOfHead = readingWhole(n, () => tensors.read(HEAD), rangeOfTensor);
  const lowBitHead = ({ rows, minima, ...found }: LowBitTensor): LowBitTensor => ({
    ...found,
    rows: readingWhole(n, () => rows(0, n), rangeOfWeights),
    ...(minima && { minima: { ...minima, rows: readingWhole(n, () => minima.rows(0, n), rangeOfTensor) } }),
  });
  return {
    ...tensors,
    readRows: (name, first, count) => (name === HEAD ? rowsOfHead(first, count) : tensors.readRows(name, first, count)),
    lowBit(name) {
      const found = tensors.lowBit?.(name) ?? null;
      return found && name === HEAD ? lowBitHead(found) : found;
    },
  };
}

/** Values of a tensor of integers, or of floats. */
function numbersOf(tensor: Tensor): Float32Array {
  const { dtype, data } = tensor;
  return /^b?f\d/.test(dtype) ? toFloat32(tensor) : Float32Array.from(data as Int32Array, Number);
}

/** What is wrong with an order of so many tokens; null where it has each of them once. */
function faultOf(order: Float32Array, tokens: number): string | null {
  if (order.length !== tokens) return `expected an id for each of ${tokens} tokens but found ${order.length}`;
  const known = new Uint8Array(tokens);
  for (const id of order) {
    if (known[id] === undefined) return `expected ids from 0 to ${tokens - 1} but found ${id}`;
    if (known[id]++ > 0) return `expected each of ${tokens} ids once but found ${id} twice`;
  }
  return null;
}
