/** Reads files of torch.save: a zip with one pickle that describes the tensors, and a file of bytes for each storage. */
import type { ByteSource } from "../../byte-source.ts";
import { byteSize, type DType, viewOf } from "../../dtype.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../../errors.ts";
import { elementCount, type Tensor } from "../../tensor.ts";
import { quote } from "../json.ts";
import type { OpenTensors } from "../tensor-source.ts";
import { adviceOn } from "../torchao.ts";
import { escapedUtf8 } from "../utf8.ts";
import { PickleGlobal, type PickleHandler, type PickleValue, readPickle } from "./pickle.ts";
import { readZip, type ZipEntry } from "./zip.ts";

/** Largest pickle: far above those of real checkpoints, which have some hundred bytes per tensor. */
const PICKLE_MAX = 1 << 26;

const storageTypes: Readonly<Record<string, DType>> = {
  "torch.FloatStorage": "f32",
  "torch.HalfStorage": "f16",
  "torch.BFloat16Storage": "bf16",
  "torch.DoubleStorage": "f64",
  "torch.CharStorage": "i8",
  "torch.ByteStorage": "u8",
  "torch.ShortStorage": "i16",
  "torch.IntStorage": "i32",
  "torch.LongStorage": "i64",
  "torch.BoolStorage": "bool",
};

class Storage {
  readonly dtype: DType;
  readonly key: string;
  constructor(dtype: DType, key: string) {
    this.dtype = dtype;
    this.key = key;
  }
}

/** A tensor as the pickle describes it. */
class TorchTensor {
  readonly storage: Storage;
  readonly offset: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  constructor(storage: Storage, offset: number, shape: readonly number[], strides: readonly number[]) {
    this.storage = storage;
    this.offset = offset;
    this.shape = shape;
    this.strides = strides;
  }
}

/** Whether a call makes the device or the layout of a tensor, which say nothing of its values. */
const isPlace = (name: string) => name === "torch.device" || name === "torch.serialization._get_layout";

/** Handles the calls that rebuild tensors, and refuses every other call by its name. */
function handlerOf(file: string): PickleHandler {
  const fail = (what: string): never => {
    throw new InvalidFileError(file, `pickle has a malformed ${what}`);
  };
  const sizes = (value: PickleValue | undefined): number[] => {
    const isSize = (item: PickleValue) => Number.isSafeInteger(item) && (item as number) >= 0;
    return Array.isArray(value) && value.length <= 8 && value.every(isSize) ? (value as number[]) : fail("tensor");
  };
  return {
    persistent(id) {
      const [kind, type, key] = Array.isArray(id) ? id : [];
      if (kind !== "storage" || !(type instanceof PickleGlobal) || typeof key !== "string") return fail("storage");
      const dtype = Object.hasOwn(storageTypes, type.name) ? storageTypes[type.name] : undefined;
      if (!dtype) throw new UnsupportedError(`${file}: storage ${type.name} is not supported`);
      return new Storage(dtype, key);
    },
    call(name, args) {
      if (name === "collections.OrderedDict") return new Map();
      if (isPlace(name)) return {};
      if (name === "torch._utils._rebuild_parameter")
        return args[0] instanceof TorchTensor ? args[0] : fail("parameter");
      if (name === "torch._utils._rebuild_tensor_v2") {
        const [storage, offset, shape, strides, , , metadata] = args;
        if (!(storage instanceof Storage) || !Number.isSafeInteger(offset) || (offset as number) < 0)
          return fail("tensor");
        const lazy = metadata instanceof Map ? ["neg", "conj"].find((bit) => metadata.get(bit) === true) : undefined;
        if (lazy)
          throw new UnsupportedError(
            `${file}: expected tensors with the values that they store but found one with torch's ${lazy} bit; ` +
              `save x.resolve_${lazy}() in its place`,
          );
        return new TorchTensor(storage, offset as number, sizes(shape), sizes(strides));
      }
      const classes = [name, ...args.map((arg) => (arg instanceof PickleGlobal ? arg.name : ""))];
      const torchao = classes.find((imported) => imported.startsWith("torchao."));
      if (torchao)
        throw new UnsupportedError(
          `${file}: tensors of ${quote(torchao)} are read from safetensors alone${adviceOn(torchao)}`,
        );
      throw new UnsupportedError(`${file}: pickle calls ${quote(name)}, which is not run: only tensors are read`);
    },
  };
}

/** Collects tensors of a dictionary and of nested ones ("model", "state_dict"), with names joined by dots. */
function collect(value: PickleValue): Map<string, TorchTensor> {
  const found = new Map<string, TorchTensor>();
  const visit = (dictionary: Map<PickleValue, PickleValue>, prefix: string, depth: number) => {
    for (const [key, item] of dictionary) {
      if (typeof key !== "string" && typeof key !== "number") continue;
      if (item instanceof TorchTensor) found.set(`${prefix}${String(key)}`, item);
      else if (item instanceof Map && depth < 3) visit(item, `${prefix}${String(key)}.`, depth + 1);
    }
  };
  if (value instanceof Map) visit(value, "", 0);
  return found;
}

/** Whether a tensor is contiguous; sizes of 1 may have any stride. */
function isContiguous({ shape, strides }: TorchTensor): boolean {
  let expected = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1 && strides[d] !== expected) return false;
    expected *= shape[d]!;
  }
  return true;
}

interface Placed {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly start: number;
}

function place(file: string, name: string, tensor: TorchTensor, entries: ReadonlyMap<string, ZipEntry>): Placed {
  const { storage, offset, shape } = tensor;
  const entry = entries.get(storage.key);
  if (!entry)
    throw new InvalidFileError(file, `tensor ${quote(name)}: storage ${quote(storage.key)} is not in the file`);
  if (!isContiguous(tensor))
    throw new UnsupportedError(`${file}: tensor ${quote(name)} is a view that is not contiguous`);
  const size = byteSize(storage.dtype);
  if ((offset + elementCount(shape)) * size > entry.byteLength)
    throw new InvalidFileError(
      file,
      `tensor ${quote(name)} [${shape}] reaches past its storage of ${entry.byteLength} bytes`,
    );
  return { dtype: storage.dtype, shape, start: entry.offset + offset * size };
}

/** Opens a file: reads the pickle and the list of files. Tensors are read when requested. */
export async function openTorchFile(source: ByteSource): Promise<OpenTensors> {
  const { name: file } = source;
  const files = await readZip(source);
  const pickle = files.find(({ name }) => name === "data.pkl" || name.endsWith("/data.pkl"));
  if (!pickle || pickle.byteLength > PICKLE_MAX)
    throw new InvalidFileError(file, "expected a file of torch.save, with a data.pkl of at most 64 MB");
  const folder = pickle.name.slice(0, -"data.pkl".length);
  const order = files.find(({ name }) => name === `${folder}byteorder`);
  if (order && escapedUtf8(await source.read(order.offset, Math.min(order.byteLength, 8))) !== "little")
    throw new UnsupportedError(`${file}: only little-endian files are supported`);
  const storages = new Map(
    files.flatMap((entry) =>
      entry.name.startsWith(`${folder}data/`) ? [[entry.name.slice(folder.length + 5), entry]] : [],
    ),
  );
  const value = readPickle(file, await source.read(pickle.offset, pickle.byteLength), handlerOf(file));
  const tensors = collect(value);
  if (tensors.size === 0) throw new InvalidFileError(file, "expected a dictionary of tensors");
  const find = (name: string): Placed => {
    const tensor = tensors.get(name);
    if (!tensor) throw new InvalidFileError(file, `has no tensor ${quote(name)} among its ${tensors.size}`);
    return place(file, name, tensor, storages);
  };
  const load = async (dtype: DType, shape: readonly number[], start: number): Promise<Tensor> => {
    const count = elementCount(shape);
    const bytes = await source.read(start, count * byteSize(dtype));
    const whole = bytes.byteOffset % byteSize(dtype) === 0 ? bytes : new Uint8Array(bytes);
    return { dtype, shape, data: viewOf(dtype, whole.buffer, whole.byteOffset, count) };
  };
  return {
    names: [...tensors.keys()],
    has: (name) => tensors.has(name),
    info: find,
    async read(name) {
      const { dtype, shape, start } = find(name);
      return load(dtype, shape, start);
    },
    async readRows(name, first, count) {
      const { dtype, shape, start } = find(name);
      const whole = Number.isSafeInteger(first) && Number.isSafeInteger(count) && first >= 0 && count >= 0;
      if (!whole || first + count > (shape[0] ?? 0))
        throw new InvalidArgumentError(
          `readRows: tensor ${quote(name)} [${shape}] has no rows ${first} to ${first + count}`,
        );
      const rest = shape.slice(1);
      return load(dtype, [count, ...rest], start + first * elementCount(rest) * byteSize(dtype));
    },
    close: () => source.close(),
  };
}
