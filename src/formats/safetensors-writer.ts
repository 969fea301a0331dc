/** Writes safetensors files tensor by tensor, so that a checkpoint is never whole in memory. */
import { byteSize, type DType, type TypedArray, zeros } from "../dtype.ts";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { writeFileWhole } from "../node-file.ts";
import { bytesOf, elementCount } from "../tensor.ts";
import { quote } from "./json.ts";
import { HEADER_MAX_BYTES, METADATA_KEY, PREFIX_BYTES, storedName } from "./safetensors-header.ts";

/** One tensor to write. */
export interface TensorEntry {
  /** Name of the tensor. */
  readonly name: string;
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes of the tensor. */
  readonly shape: readonly number[];
  /** Called once, when the tensor is written; the array has exactly the elements of `shape`. */
  data(): Promise<TypedArray>;
}

/**
 * Writes a safetensors file that appears at `path` complete or not at all. Tensors are stored, and their `data` called, by
 * descending element size and then in the given order, which aligns each to its element size. InvalidArgumentError for
 * duplicate names, ShapeError for data that does not fit its entry.
 */
export async function writeSafetensors(
  path: string,
  entries: readonly TensorEntry[],
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  const ordered = [...entries].sort((a, b) => byteSize(b.dtype) - byteSize(a.dtype));
  const header = encodeHeader(ordered, metadata);
  await writeFileWhole(path, async (sink) => {
    await sink.write(header);
    for (const entry of ordered) await sink.write(checkedBytes(entry, await entry.data()));
  });
}

/** Encodes the length and the JSON, padded with spaces so that the data begins at a multiple of 8. */
function encodeHeader(entries: readonly TensorEntry[], metadata: Readonly<Record<string, string>>): Uint8Array {
  const fields = new Map<string, unknown>();
  if (Object.keys(metadata).length > 0) fields.set(METADATA_KEY, metadata);
  let begin = 0;
  for (const { name, dtype, shape } of entries) {
    if (name === METADATA_KEY || fields.has(name))
      throw new InvalidArgumentError(
        `writeSafetensors: tensor name ${quote(name)} is ${name === METADATA_KEY ? "reserved" : "given twice"}`,
      );
    const end = begin + elementCount(shape) * byteSize(dtype);
    if (!Number.isSafeInteger(end) || shape.some((size) => !Number.isSafeInteger(size) || size < 0))
      throw new ShapeError(`writeSafetensors: tensor ${quote(name)} has no valid size in bytes: shape [${shape}]`);
    fields.set(name, { dtype: storedName(dtype), shape, data_offsets: [begin, end] });
    begin = end;
  }
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(fields)));
  const length = Math.ceil(json.length / 8) * 8;
  if (length > HEADER_MAX_BYTES)
    throw new InvalidArgumentError(
      `writeSafetensors: the header needs ${length} bytes but safetensors allows ${HEADER_MAX_BYTES}; write fewer tensors`,
    );
  const header = new Uint8Array(PREFIX_BYTES + length).fill(" ".charCodeAt(0));
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(json, PREFIX_BYTES);
  return header;
}

function checkedBytes({ name, dtype, shape }: TensorEntry, data: TypedArray): Uint8Array {
  const count = elementCount(shape);
  const expected = zeros(dtype, 0)[Symbol.toStringTag];
  const found = data[Symbol.toStringTag];
  if (data.length !== count || found !== expected)
    throw new ShapeError(
      `writeSafetensors: tensor ${quote(name)} of dtype ${dtype} and shape [${shape}] needs ${expected} of ${count}, ` +
        `found ${found} of ${data.length}`,
    );
  return bytesOf(data);
}
