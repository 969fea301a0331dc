/** Packs weights into the panel layouts, described in panels.ts. */
import { ShapeError } from "../../errors.ts";
import { e4m3Code, e4m3Table } from "../../float8.ts";
import { f16Table, f32ToF16 } from "../../half.ts";
import {
  groupCount,
  hasFactors,
  type QuantizedWeights,
  SUPER_GROUP,
  storesZeros,
  superGroupCount,
  type WeightSpec,
} from "../../quantized.ts";
import type { LayoutPacker, PackedLayout, PackTarget } from "../contract.ts";
import { shiftRefusal, writeHeader } from "./header.ts";
import { type PanelGeometry, panelGeometry, scaleBytes } from "./panel-geometry.ts";
import { GroupPacker, type WordPlaces } from "./panel-pack.ts";

/** Places of words, and the mask that stored vector bytes are XORed with. */
interface PanelPlaces extends WordPlaces {
  readonly flip: number;
}

/** Packs rows into one buffer. */
export class PanelPacker implements LayoutPacker {
  readonly #options: PanelPlaces;
  readonly #layout: PackedLayout;
  readonly #spec: WeightSpec;
  readonly #bias: Float32Array | null;
  readonly #target: Uint8Array;
  readonly #view: DataView;
  readonly #geometry: PanelGeometry;
  readonly #groups: GroupPacker;
  #levels: Int8Array | null = null;
  #hasNegativeScale = false;

  constructor(options: PanelPlaces, layout: PackedLayout, { spec, bias, target }: PackTarget) {
    this.#options = options;
    this.#layout = layout;
    this.#spec = spec;
    this.#bias = bias;
    this.#target = target;
    this.#view = new DataView(target.buffer, target.byteOffset, target.length);
    this.#geometry = panelGeometry(options.rows, spec, bias !== null);
    this.#groups = new GroupPacker(options, spec.bits, this.#geometry.groupLength, target);
  }

  add(part: QuantizedWeights, firstRow: number): void {
    checkFactors(part);
    this.#levels = part.levels;
    this.#groups.from(part.qvals);
    for (let row = 0; row < part.n; row++) this.#addRow(part, row, firstRow + row);
  }

  finish(): void {
    if (this.#options.flip) flipVectors(this.#options.flip, this.#geometry, this.#target);
    const content = { spec: this.#spec, hasBias: this.#bias !== null, levels: this.#levels };
    writeHeader(this.#target, this.#layout, { ...content, mark: this.#hasNegativeScale ? 0 : 1 });
  }

  /** Packs a row. Its correction is the sum of its weights, in double precision. */
  #addRow(part: QuantizedWeights, from: number, row: number): void {
    const { rows } = this.#options;
    const { parts, groupBytes, zerosOffset, vectorsOffset, panelBytes, firstPanel } = this.#geometry;
    const { k, groupSize, bits, scales, zeros, minima } = part;
    const groups = groupCount(part);
    const panel = firstPanel + Math.floor(row / rows) * panelBytes;
    const lane = row % rows;
    const lowest = -(2 ** (bits - 1));
    this.#storeFactors(part, from, panel, lane);
    let correction = 0;
    for (let group = 0; group < groups; group++) {
      const [block, place] = [Math.floor(group / parts), group % parts];
      const start = panel + block * groupBytes;
      const index = from * groups + group;
      const scale = scales[index]!;
      const zero = zeros ? zeros[index]! : minima ? lowest : 0;
      if (!(scale > 0) && (scale < 0 || Object.is(scale, -0))) this.#hasNegativeScale = true;
      this.#storeScales(part, { index, from, group }, start, place * rows + lane);
      if (storesZeros(part)) this.#view.setInt8(start + zerosOffset + lane, zero);
      const first = from * k + group * groupSize;
      const count = Math.min(k - group * groupSize, groupSize);
      const sum = this.#groups.pack(first, count, lane, start + vectorsOffset, place * groupSize);
      correction += ((part.levels ? levelSum(part, first, count) : sum) - count * zero) * scale;
      if (minima) correction += count * minima[index]!;
    }
    this.#view.setFloat32(panel + this.#geometry.correctionOffset + 4 * lane, correction, true);
    if (this.#bias) this.#view.setFloat32(panel + this.#geometry.biasOffset + 4 * lane, this.#bias[row]!, true);
  }

  /** Stores a row's scale factors, before the first group of its panel. */
  #storeFactors(part: QuantizedWeights, from: number, panel: number, lane: number): void {
    const { superScales, superMinima } = part;
    const count = superGroupCount(part);
    const { frontBytes, superBytes } = this.#geometry;
    if (part.scaleDType === "e4m3") this.#view.setFloat32(panel - frontBytes + 4 * lane, superScales![from]!, true);
    else if (superScales)
      for (let i = 0; i < count; i++) {
        const at = panel - frontBytes + i * superBytes + 2 * lane;
        this.#view.setUint16(at, f32ToF16(superScales[from * count + i]!), true);
        if (superMinima)
          this.#view.setUint16(at + 2 * this.#options.rows, f32ToF16(-superMinima[from * count + i]!), true);
      }
  }

  /** Stores scale and minimum of a group, for lane `lane` of the stored group that begins at `start`. */
  #storeScales(
    part: QuantizedWeights,
    { index, from, group }: { readonly index: number; readonly from: number; readonly group: number },
    start: number,
    lane: number,
  ): void {
    const { scales, minima, superScales, superMinima, scaleDType } = part;
    const factor = from * superGroupCount(part) + factorOf(part, group);
    const store = (at: number, value: number, factors: Float32Array | undefined) => {
      if (scaleDType === "f32") this.#view.setFloat32(at, value, true);
      else if (scaleDType === "f16") this.#view.setUint16(at, f32ToF16(value), true);
      else if (scaleDType === "e4m3") this.#view.setUint8(at, e4m3CodeOf(value, factors![factor]!));
      else this.#view.setInt8(at, integerOf(value, factors![factor]!));
    };
    const at = start + scaleBytes[scaleDType] * lane;
    store(at, scales[index]!, superScales);
    if (!minima) return;
    const negated = scaleDType === "i8" ? minima[index]! : -minima[index]!;
    store(at + this.#geometry.minimaOffset, negated, superMinima);
  }
}

/** Index of a group's factor among those of its row. */
function factorOf({ groupSize, scaleDType }: WeightSpec, group: number): number {
  return scaleDType === "e4m3" ? 0 : Math.floor((group * groupSize) / SUPER_GROUP);
}

/** The integer q for which q * factor = value. */
function integerOf(value: number, factor: number): number {
  return factor === 0 ? 0 : Math.round(value / factor);
}

/** The code of the e4m3 number x for which x * factor = value. */
function e4m3CodeOf(value: number, factor: number): number {
  return factor === 0 ? 0 : e4m3Code(value / factor);
}

/**
 * ShapeError for scales that are not exactly an integer or e4m3 number times their factor, and for factors that do not fit
 * their type.
 */
export function checkFactors(part: QuantizedWeights): void {
  if (!hasFactors(part)) return;
  checkProducts(part, "scale", part.scales, part.superScales);
  if (part.hasMinima) checkProducts(part, "minimum", part.minima, part.superMinima);
  if (part.oddZero !== undefined) checkParities(part, part.oddZero);
}

/** ShapeError for zero points that are not those which the parities of the scales tell, and for levels too large for them. */
function checkParities(part: QuantizedWeights, oddZero: number): void {
  const refusal = shiftRefusal(part.levels, oddZero);
  if (refusal) throw new ShapeError(`packed weights: ${refusal}`);
  const [groups, count] = [groupCount(part), superGroupCount(part)];
  for (let row = 0, i = 0; row < part.n; row++)
    for (let group = 0; group < groups; group++, i++) {
      const integer = integerOf(part.scales[i]!, part.superScales![row * count + factorOf(part, group)]!);
      const expected = oddZero * (integer & 1);
      const found = part.zeros?.[i];
      if (found !== expected)
        throw new ShapeError(
          `packed weights: expected zero point ${expected} with integer scale ${integer} but found ${found}`,
        );
    }
}

function checkProducts(
  part: QuantizedWeights,
  name: string,
  values: Float32Array | undefined,
  factors: Float32Array | undefined,
): void {
  const [groups, count] = [groupCount(part), superGroupCount(part)];
  const isInteger = part.scaleDType === "i8";
  if (values?.length !== part.n * groups || factors?.length !== part.n * count)
    throw new ShapeError(
      `packed weights: ${isInteger ? `integer scales need a factor for each ${SUPER_GROUP} weights of a` : "e4m3 scales need a factor for each"} row`,
    );
  const halves = f16Table();
  for (const factor of factors)
    if (isInteger ? halves[f32ToF16(factor)] !== factor : !Number.isFinite(factor))
      throw new ShapeError(
        `packed weights: expected factors of scales that are ${isInteger ? "float16" : "finite"} numbers but found ${factor}`,
      );
  for (let row = 0, i = 0; row < part.n; row++)
    for (let group = 0; group < groups; group++, i++) {
      const factor = factors[row * count + factorOf(part, group)]!;
      if (isInteger ? isProduct(values[i]!, factor) : isE4m3Product(values[i]!, factor)) continue;
      throw new ShapeError(
        `packed weights: expected a ${name} that is ${isInteger ? "an integer of -128..127" : "an e4m3 number"} times ${factor} but found ${values[i]}`,
      );
    }
}

function isProduct(value: number, factor: number): boolean {
  const integer = integerOf(value, factor);
  return integer * factor === value && integer >= -128 && integer <= 127;
}

function isE4m3Product(value: number, factor: number): boolean {
  return Math.fround(e4m3Table()[e4m3CodeOf(value, factor)]! * factor) === value;
}

/** Sum of the codebook levels of `count` weights. */
function levelSum({ bits, qvals, levels }: QuantizedWeights, first: number, count: number): number {
  const offset = 1 << (bits - 1);
  let sum = 0;
  for (let i = first; i < first + count; i++) sum += levels![qvals[i]! + offset]!;
  return sum;
}

function flipVectors(flip: number, geometry: PanelGeometry, target: Uint8Array): void {
  const { groups, groupBytes, vectorsOffset, firstPanel, panelBytes, panels } = geometry;
  for (let panel = 0; panel < panels; panel++)
    for (let group = 0; group < groups; group++) {
      const start = firstPanel + panel * panelBytes + group * groupBytes;
      for (let i = start + vectorsOffset; i < start + groupBytes; i++) target[i]! ^= flip;
    }
}
