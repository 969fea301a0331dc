/** Constants of weights [n, k]: packed when they are read, and joined along n, so that one call reads several matrices. */
import type { HeadedParts } from "../byte-source.ts";
import type { TypedArray } from "../dtype.ts";
import { UnsupportedError } from "../errors.ts";
import { startFastPacking } from "../kernels/families/packing/packer.ts";
import { HEADER_BYTES, HeaderOfParts } from "../kernels/layout/header.ts";
import type { QuantizedWeights } from "../quantized.ts";
import type { LazyConstant, PackedSource, UnpackedMatrix, UnpackedStream } from "./builder.ts";

/** A constant of packed weights, named after the weight and the layout. */
export function packedWeights(name: string, source: PackedSource): LazyConstant {
  const { spec, layout, hasBias, load, stream } = source;
  return {
    key: `${name}:${layout.name}`,
    dtype: "u8",
    shape: [layout.byteLength(spec, hasBias)],
    packed: source,
    ...(stream && layout.isOfPanels && { headed: () => packInParts(source, stream) }),
    async read() {
      if (stream) return packStream(source, stream);
      const { weights, bias } = await load();
      const { packer, target } = startFastPacking(spec, bias, layout);
      packer.add(weights, 0);
      packer.finish();
      return target;
    },
  };
}

async function packStream({ spec, layout }: PackedSource, { rows, bias }: UnpackedStream): Promise<Uint8Array> {
  const { packer, target } = startFastPacking(spec, await bias(), layout);
  let row = 0;
  for await (const part of rows()) {
    packer.add(part, row);
    row += part.n;
  }
  packer.finish();
  return target;
}

/** Packs the matrix in parts, so that it is never whole in memory. */
function packInParts({ spec, layout, hasBias }: PackedSource, { rows, bias }: UnpackedStream): HeadedParts {
  const header = new HeaderOfParts();
  async function* rest() {
    const biases = await bias();
    let row = 0;
    for await (const part of rows()) {
      const own = biases?.subarray(row, row + part.n) ?? null;
      const { packer, target } = startFastPacking({ ...spec, n: part.n }, own, layout);
      packer.add(part, 0);
      packer.finish();
      header.add(target);
      row += part.n;
      yield target.subarray(HEADER_BYTES);
    }
  }
  const head = () => header.finish(spec.n, layout.byteLength(spec, hasBias));
  return { headBytes: HEADER_BYTES, rest: rest(), head };
}

/**
 * Joins the rows of all parts to one constant; null where their formats differ or their codebooks cannot be compared.
 * `sharesLevels`: codebooks that are not known yet are taken to be equal, which is checked when they are read.
 */
export function joinRows(parts: readonly LazyConstant[], sharesLevels = false): LazyConstant | null {
  const [first] = parts;
  if (!first || parts.some((part) => (part.packed === undefined) !== (first.packed === undefined))) return null;
  return first.packed ? joinPacked(parts, sharesLevels) : joinPlain(parts);
}

function joinPacked(parts: readonly LazyConstant[], sharesLevels: boolean): LazyConstant | null {
  const sources = parts.map(({ packed }) => packed!);
  const [{ spec, layout, hasBias }] = sources as [PackedSource];
  const stored = (source: PackedSource) => ({ ...source.spec, n: 0, layout: source.layout.name, bias: source.hasBias });
  const alike = sources.every((source) => JSON.stringify(stored(source)) === JSON.stringify(stored(sources[0]!)));
  // Matrices with different codebooks cannot be joined.
  if (!alike || (spec.hasLevels && !sharesLevels && !haveOneCodebook(sources))) return null;
  const joined = { ...spec, n: sources.reduce((sum, source) => sum + source.spec.n, 0) };
  if (layout.refusal(joined)) return null;
  const load = async () => joinMatrices(await inTurn(sources, (source) => source.load()), joined);
  const stream = joinStreams(sources);
  const { levels, codebook }: Pick<PackedSource, "levels" | "codebook"> = haveOneCodebook(sources) ? sources[0]! : {};
  const known = { ...(levels && { levels }), ...(codebook !== undefined && { codebook }) };
  const source = { spec: joined, layout, hasBias, load, ...(stream && { stream }), ...known };
  return packedWeights(joinedName(parts.map(({ key }) => weightName(key))), source);
}

function haveOneCodebook(sources: readonly PackedSource[]): boolean {
  const [first, ...others] = sources.map(({ levels, codebook }) => codebook ?? levels?.join());
  return first !== undefined && others.every((other) => other === first);
}

/**
 * Joins streams one after the other; null unless all but the last have whole panels, so that every part begins with a
 * panel.
 */
function joinStreams(sources: readonly PackedSource[]): UnpackedStream | null {
  const streams = sources.flatMap(({ stream }) => stream ?? []);
  if (streams.length < sources.length || sources.slice(0, -1).some(({ spec, layout }) => spec.n % layout.nr !== 0))
    return null;
  return {
    async *rows() {
      for (const { rows } of streams) yield* rows();
    },
    async bias() {
      const biases = await inTurn(streams, ({ bias }) => bias());
      return biases.every((values) => values !== null) ? concatenated(biases as Float32Array[]) : null;
    },
  };
}

function joinMatrices(matrices: readonly UnpackedMatrix[], spec: PackedSource["spec"]): UnpackedMatrix {
  const part = <K extends keyof QuantizedWeights>(name: K) => matrices.map(({ weights }) => weights[name]);
  const biases = matrices.map(({ bias }) => bias);
  return {
    weights: {
      ...spec,
      qvals: concatenated(part("qvals")),
      scales: concatenated(part("scales")),
      zeros: spec.hasZeros
        ? concatenated(matrices.map(({ weights }) => weights.zeros ?? new Int8Array(weights.scales.length)))
        : null,
      levels: sharedLevels(matrices),
      ...joinedFloats(matrices, "minima"),
      ...joinedFloats(matrices, "superScales"),
      ...joinedFloats(matrices, "superMinima"),
    },
    bias: biases.every((values) => values !== null) ? concatenated(biases as Float32Array[]) : null,
  };
}

/** The codebook that all matrices share. UnsupportedError where they differ. */
function sharedLevels(matrices: readonly UnpackedMatrix[]): QuantizedWeights["levels"] {
  const [first, ...others] = matrices.map(({ weights }) => weights.levels);
  if (others.some((levels) => levels?.join() !== first?.join()))
    throw new UnsupportedError("expected one codebook for matrices that are packed as one but found several");
  return first ?? null;
}

/** Concatenates the numbers `name` of all matrices; nothing where they have none. */
function joinedFloats(matrices: readonly UnpackedMatrix[], name: "minima" | "superScales" | "superMinima") {
  const parts = matrices.flatMap(({ weights }) => weights[name] ?? []);
  return parts.length === matrices.length ? { [name]: concatenated(parts) } : {};
}

/** Joins plain tensors of one dtype and row size; null where they differ. */
function joinPlain(parts: readonly LazyConstant[]): LazyConstant | null {
  const [{ dtype, shape, key }] = parts as [LazyConstant];
  const row = shape.slice(1).join();
  if (shape.length === 0 || parts.some((part) => part.dtype !== dtype || part.shape.slice(1).join() !== row))
    return null;
  const rows = parts.reduce((sum, part) => sum + part.shape[0]!, 0);
  const form = key.slice(weightName(key).length);
  return {
    key: `${joinedName(parts.map((part) => weightName(part.key)))}${form}`,
    dtype,
    shape: [rows, ...shape.slice(1)],
    read: async () => concatenated(await inTurn(parts, (part) => part.read())),
  };
}

async function inTurn<P, R>(parts: readonly P[], work: (part: P) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const part of parts) results.push(await work(part));
  return results;
}

function concatenated<A extends TypedArray>(parts: readonly A[]): A {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const target = new (parts[0]!.constructor as new (length: number) => A)(length);
  let at = 0;
  for (const part of parts) {
    (target as Int8Array).set(part as Int8Array, at);
    at += part.length;
  }
  return target;
}

/** The weight's name in the key of a constant, which is name and format: "lm_head.weight:panel16". */
export function weightName(key: string): string {
  return key.replace(/:[^:]*$/, "");
}

/** One name for several, with what they share written once: "self_attn.{q,k,v}_proj.weight". */
function joinedName(names: readonly string[]): string {
  const [first] = names as [string];
  const agree = (part: (name: string) => string) => names.every((name) => part(name) === part(first));
  const shortest = Math.min(...names.map(({ length }) => length));
  let head = 0;
  while (head < shortest && agree((name) => name.slice(0, head + 1))) head++;
  let tail = 0;
  while (tail < shortest - head && agree((name) => name.slice(name.length - tail - 1))) tail++;
  const middles = names.map((name) => name.slice(head, name.length - tail));
  return `${first.slice(0, head)}{${middles.join()}}${first.slice(first.length - tail)}`;
}
