/** Copies of tensors in another order, shape or selection: strided reads in the order of the result. */
import { InvalidArgumentError } from "../../errors.ts";
import { elementCount, type Tensor } from "../../tensor.ts";
import { denseKernel, eachPlace, numbersOf, storeInto, stridesOf } from "./dense.ts";

export interface StridedArgs {
  readonly x: Tensor;
  /** Offset of the first element in x, and strides, in elements of x, for the dimensions of the result. */
  readonly start: number;
  readonly strides: readonly number[];
  readonly out: Tensor;
}

/** y[i, j, ...] = x[start + i * strides[0] + j * strides[1] + ...], converted where dtypes differ. */
export const stridedReference = denseKernel<StridedArgs>("strided", ({ x, start, strides, out }) => {
  const convert = x.dtype !== out.dtype;
  const values = convert ? numbersOf(x) : x.data;
  const target = out.data as Float32Array;
  const store = convert
    ? storeInto(out)
    : (index: number, value: number) => {
        target[index] = value;
      };
  eachPlace(out.shape, strides, (index, offset) => store(index, (values as Float32Array)[offset]!), start);
});

export interface SliceScatterArgs extends StridedArgs {
  /** Tensor into which x is written, in order, at `start` with `strides`. */
  readonly base: Tensor;
}

/** out = base, with x written to strided places. */
export const sliceScatterReference = denseKernel<SliceScatterArgs>(
  "slice_scatter",
  ({ base, x, start, strides, out }) => {
    const target = out.data as Float32Array;
    const source = x.data as Float32Array;
    target.set(base.data as Float32Array);
    eachPlace(
      x.shape,
      strides,
      (index, offset) => {
        target[offset] = source[index]!;
      },
      start,
    );
  },
);

export interface PadArgs {
  readonly x: Tensor;
  /** Offset of x's first element in the result, and the result's strides. */
  readonly start: number;
  readonly strides: readonly number[];
  readonly value: number;
  readonly out: Tensor;
}

/** out = x surrounded by a constant. */
export const padReference = denseKernel<PadArgs>("pad", ({ x, start, strides, value, out }) => {
  const store = storeInto(out);
  const values = numbersOf(x);
  for (let i = 0; i < out.data.length; i++) store(i, value);
  eachPlace(x.shape, strides, (index, offset) => store(offset, values[index]!), start);
});

export interface CatArgs {
  readonly parts: readonly Tensor[];
  /** Adjacent elements of each tensor: those of the concatenated dimension and of all after it. */
  readonly blocks: readonly number[];
  readonly out: Tensor;
}

/** Concatenates blocks of the tensors in turn, converted where dtypes differ. */
export const catReference = denseKernel<CatArgs>("cat", ({ parts, blocks, out }) => {
  const target = out.data as Float32Array;
  const isSame = parts.every(({ dtype }) => dtype === out.dtype);
  const store = storeInto(out);
  const perRow = blocks.reduce((sum, size) => sum + size, 0);
  let start = 0;
  for (const [i, part] of parts.entries()) {
    const block = blocks[i]!;
    const values = isSame ? null : numbersOf(part);
    for (let from = 0, to = start; from < part.data.length; from += block, to += perRow)
      if (values) for (let at = 0; at < block; at++) store(to + at, values[from + at]!);
      else target.set((part.data as Float32Array).subarray(from, from + block), to);
    start += block;
  }
});

export interface IndexArgs {
  /** Read at the places; or, with `values`, copied to `out`, in which they are then written. */
  readonly x: Tensor;
  /** Number of elements before the indexed dimensions; sizes of the indexed ones; `after`: elements after them. */
  readonly before: number;
  readonly sizes: readonly number[];
  readonly after: number;
  /** Indices of each indexed dimension, broadcast to one length. */
  readonly indices: readonly ArrayLike<number>[];
  readonly values: Tensor | null;
  readonly accumulate: boolean;
  readonly out: Tensor;
}

/** Offsets within the indexed dimensions, which are the same for everything before those. */
function pickedPlaces({ sizes, indices }: IndexArgs): Int32Array {
  const places = new Int32Array(indices[0]!.length);
  for (const [dim, size] of sizes.entries()) {
    const values = indices[dim]!;
    for (let i = 0; i < places.length; i++) {
      const index = values[i]!;
      const wrapped = index < 0 ? index + size : index;
      if (!(wrapped >= 0 && wrapped < size))
        throw new InvalidArgumentError(`index ${index} is out of range of a dimension of size ${size}`);
      places[i] = places[i]! * size + wrapped;
    }
  }
  return places;
}

/** Calls `visit(offset in x, offset in the selection)` for each block of `after` elements. */
function eachPicked(args: IndexArgs, visit: (place: number, picked: number) => void): void {
  const { before, sizes, after } = args;
  const places = pickedPlaces(args);
  const count = places.length;
  const block = sizes.reduce((product, size) => product * size, 1);
  for (let row = 0; row < before; row++)
    for (let i = 0; i < count; i++) visit((row * block + places[i]!) * after, (row * count + i) * after);
}

/** Selects single elements without views, which would take many times as long. */
function pickElements(args: IndexArgs, source: Float32Array, target: Float32Array): void {
  const places = pickedPlaces(args);
  const block = args.sizes.reduce((product, size) => product * size, 1);
  for (let row = 0, i = 0, start = 0; row < args.before; row++, start += block)
    for (let j = 0; j < places.length; j++, i++) target[i] = source[start + places[j]!]!;
}

/** out = x[..., indices, ...]. */
export const indexReference = denseKernel<IndexArgs>("index", (args) => {
  const { x, after, out } = args;
  const source = x.data as Float32Array;
  const target = out.data as Float32Array;
  if (after === 1) pickElements(args, source, target);
  else eachPicked(args, (place, picked) => target.set(source.subarray(place, place + after), picked));
});

/** out = x with values written to, or added at, [..., indices, ...]; values have the selection's shape or one element. */
export const indexPutReference = denseKernel<IndexArgs>("index_put", (args) => {
  const { x, after, values, accumulate, out } = args;
  if (out.data !== x.data) (out.data as Float32Array).set(x.data as Float32Array);
  const target = out.data as Float32Array;
  const source = values!.data as Float32Array;
  eachPicked(args, (place, picked) => {
    for (let i = 0; i < after; i++) {
      const value = source[source.length === 1 ? 0 : picked + i]!;
      target[place + i] = accumulate ? target[place + i]! + value : value;
    }
  });
});

export interface GatherArgs {
  readonly x: Tensor;
  readonly dim: number;
  /** Index with as many dimensions as x, and the result's shape. */
  readonly index: Tensor;
  readonly out: Tensor;
}

/** Calls `visit(i, offset in x)` for each element i of the index, which is a position along dimension `dim` of x. */
function eachNamed(
  { x, dim, index }: Pick<GatherArgs, "x" | "dim" | "index">,
  visit: (i: number, place: number) => void,
): void {
  const strides = stridesOf(x.shape);
  const step = strides[dim] ?? 1;
  const size = x.shape[dim] ?? 1;
  const places = numbersOf(index);
  eachPlace(index.shape, x.shape.length === 0 ? [0] : strides.with(dim, 0), (i, offset) => {
    const place = places[i]!;
    if (!(place >= 0 && place < size))
      throw new InvalidArgumentError(`index ${place} is out of range of a dimension of size ${size}`);
    visit(i, offset + place * step);
  });
}

/** y[i, j, k] = x[i, index[i, j, k], k] for the second dimension. */
export const gatherReference = denseKernel<GatherArgs>("gather", (args) => {
  const source = args.x.data as Float32Array;
  const target = args.out.data as Float32Array;
  eachNamed(args, (i, place) => {
    target[i] = source[place]!;
  });
});

export interface ScatterArgs extends GatherArgs {
  /** A tensor at least as large as the index in each dimension, or one number for all. */
  readonly source: Tensor | number;
  readonly accumulate: boolean;
}

/** out = x with out[i, index[i, j, k], k] = source[i, j, k], or with that added, for the second dimension. */
export const scatterReference = denseKernel<ScatterArgs>("scatter", (args) => {
  const { x, index, source, accumulate, out } = args;
  (out.data as Float32Array).set(x.data as Float32Array);
  const sums = numbersOf(x).slice();
  const store = storeInto(out);
  const given = new Float64Array(elementCount(index.shape));
  if (typeof source === "number") given.fill(source);
  else {
    const values = numbersOf(source);
    eachPlace(index.shape, stridesOf(source.shape), (i, offset) => {
      given[i] = values[offset]!;
    });
  }
  eachNamed(args, (i, place) => {
    sums[place] = accumulate ? sums[place]! + given[i]! : given[i]!;
    store(place, sums[place]!);
  });
});

export interface RowsCopyArgs {
  readonly source: Uint8Array;
  readonly target: Uint8Array;
}

/** Copies bytes to the start of a tensor's place. */
export const rowsCopyReference = denseKernel<RowsCopyArgs>("rows_copy", ({ source, target }) => target.set(source));
