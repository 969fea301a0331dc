/** Checkpoints that store a weight of all experts in one tensor: each expert's weights become parts of it. */
import { InvalidArgumentError, ShapeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import type { LowBitTensor, TensorInfo, TensorSource } from "../../formats/tensor-source.ts";
import type { ExpertStack } from "../../model/layer.ts";
import { pickRows, type QuantizedWeights } from "../../quantized.ts";
import { type Tensor, zeroTensor } from "../../tensor.ts";

/**
 * A weight of one expert in a stacked tensor: rows first, first + step, … of a matrix [n, k], or values of a vector [n].
 */
interface Part {
  readonly stack: ExpertStack;
  /** Name of the stacked tensor. */
  readonly tensor: string;
  /** Number of the expert in the tensor; null where the tensor is the expert's own. */
  readonly expert: number | null;
  readonly first: number;
  readonly step: number;
  readonly info: TensorInfo;
}

/** The checkpoint with the weights of each expert in place of stacked tensors. */
export function withExpertStacks(checkpoint: Checkpoint, stacks: readonly ExpertStack[]): Checkpoint {
  const { tensors } = checkpoint;
  const parts = new Map<string, Part>();
  const hidden = new Set<string>();
  for (const stack of stacks)
    for (const expert of Array(stack.experts).keys()) {
      const tensor = stack.tensor.replace("*", `${expert}`);
      if (!tensors.has(tensor)) break;
      hidden.add(tensor);
      const own = tensor === stack.tensor ? expert : null;
      for (const [slot, part] of partsOf(checkpoint, { stack, tensor, expert: own }))
        parts.set(slot.replace("*", `${expert}`), part);
    }
  return parts.size === 0 ? checkpoint : { ...checkpoint, tensors: new ExpertTensors(tensors, parts, hidden) };
}

function* partsOf(
  { folder, tensors }: Checkpoint,
  { stack, tensor, expert }: Pick<Part, "stack" | "tensor" | "expert">,
): Generator<readonly [string, Part]> {
  const { slots, experts, isInterleaved, isTransposed } = stack;
  const { dtype, shape } = tensors.info(tensor);
  const own = expert === null ? shape : shape.slice(1);
  const rows = (isTransposed ? own[1] : own[0]) ?? 0;
  const isWhole = (expert === null || shape[0] === experts) && own.length <= 2 && rows > 0 && rows % slots.length === 0;
  if (!isWhole)
    throw new ShapeError(
      `${folder}, tensor ${tensor}: expected a matrix for each of ${experts} experts, of rows for ${slots.length} weights, but found shape [${shape}]`,
    );
  const count = rows / slots.length;
  const info = { dtype, shape: own.length === 1 ? [count] : [count, isTransposed ? own[0]! : own[1]!] };
  for (const [i, slot] of slots.entries()) {
    const place = isInterleaved ? { first: i, step: slots.length } : { first: i * count, step: 1 };
    yield [slot, { stack, tensor, expert, ...place, info }];
  }
}

class ExpertTensors implements TensorSource {
  readonly names: readonly string[];
  readonly #base: TensorSource;
  readonly #parts: ReadonlyMap<string, Part>;
  readonly #known: ReadonlySet<string>;
  /** The last expert's matrix, since its parts and their rows are read one after the other. */
  #last: { readonly key: string; readonly values: Promise<Tensor> } | null = null;

  constructor(base: TensorSource, parts: ReadonlyMap<string, Part>, hidden: ReadonlySet<string>) {
    this.#base = base;
    this.#parts = parts;
    this.names = [...base.names.filter((name) => !hidden.has(name)), ...parts.keys()];
    this.#known = new Set(this.names);
  }

  has(name: string): boolean {
    return this.#known.has(name);
  }

  info(name: string): TensorInfo {
    return this.#parts.get(name)?.info ?? this.#base.info(name);
  }

  read(name: string): Promise<Tensor> {
    const part = this.#parts.get(name);
    return part ? this.#rows(part, 0, part.info.shape[0]!) : this.#base.read(name);
  }

  async readRows(name: string, first: number, count: number): Promise<Tensor> {
    const part = this.#parts.get(name);
    if (!part) return this.#base.readRows(name, first, count);
    const isWhole = Number.isSafeInteger(first) && Number.isSafeInteger(count) && first >= 0 && count >= 0;
    if (!isWhole || first + count > part.info.shape[0]!)
      throw new InvalidArgumentError(
        `readRows: tensor ${name} [${part.info.shape}] has no rows ${first} to ${first + count}`,
      );
    return this.#rows(part, first, count);
  }

  lowBit(name: string): LowBitTensor | null {
    const part = this.#parts.get(name);
    if (!part) return this.#base.lowBit?.(name) ?? null;
    const whole = part.stack.isTransposed ? null : (this.#base.lowBit?.(part.tensor) ?? null);
    return whole && lowBitPart(whole, part);
  }

  storedType(name: string): string {
    const tensor = this.#parts.get(name)?.tensor ?? name;
    return this.#base.storedType?.(tensor) ?? this.#base.info(tensor).dtype;
  }

  async #rows(part: Part, first: number, count: number): Promise<Tensor> {
    const { stack, info, step } = part;
    const { data } = await this.#matrix(part);
    const [, columns = 1] = info.shape;
    const result = zeroTensor(info.dtype, [count, ...info.shape.slice(1)]);
    const target = result.data as Float32Array;
    const source = data as Float32Array;
    const rows = source.length / columns;
    for (let i = 0; i < count; i++) {
      const row = part.first + (first + i) * step;
      if (!stack.isTransposed) target.set(source.subarray(row * columns, (row + 1) * columns), i * columns);
      else for (let c = 0; c < columns; c++) target[i * columns + c] = source[c * rows + row]!;
    }
    return result;
  }

  /** An expert's whole matrix. */
  #matrix({ tensor, expert }: Part): Promise<Tensor> {
    const key = `${tensor} ${expert}`;
    if (this.#last?.key !== key) {
      const values = expert === null ? this.#base.read(tensor) : this.#base.readRows(tensor, expert, 1);
      this.#last = { key, values };
    }
    return this.#last.values;
  }
}

/** Rows of an expert's low-bit matrix, within the matrix of all experts. */
function lowBitPart(whole: LowBitTensor, { expert, stack, first, step, info }: Part): LowBitTensor {
  const [n = 0] = info.shape;
  const start = (expert ?? 0) * n * stack.slots.length + first;
  const { rows, minima, ...rest } = whole;
  const pick =
    <D>(read: (from: number, count: number) => Promise<D>, choose: (found: D) => D) =>
    async (from: number, count: number): Promise<D> => {
      const span = count === 0 ? 0 : (count - 1) * step + 1;
      const found = await read(start + from * step, span);
      return step === 1 ? found : choose(found);
    };
  return {
    ...rest,
    spec: { ...whole.spec, n },
    rows: pick(rows, (found) => everyRow(found, step)),
    ...(minima && {
      minima: { dtype: minima.dtype, rows: pick(minima.rows, (found) => everyRowOf(found, step)) },
    }),
  };
}

function everyRow(weights: QuantizedWeights, step: number): QuantizedWeights {
  return pickRows(
    weights,
    Array.from({ length: Math.ceil(weights.n / step) }, (_, i) => i * step),
  );
}

function everyRowOf({ dtype, shape, data }: Tensor, step: number): Tensor {
  const [rows = 0, width = 1] = shape;
  const result = zeroTensor(dtype, [Math.ceil(rows / step), width]);
  for (let i = 0; i < result.shape[0]!; i++)
    (result.data as Float32Array).set(
      (data as Float32Array).subarray(i * step * width, (i * step + 1) * width),
      i * width,
    );
  return result;
}
