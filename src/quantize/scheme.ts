/** How a weight matrix is to be quantized: the choices, their checks, the spec that follows. Computes no weights. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { FactoredScale, ScaleDType, WeightSpec } from "../quantized.ts";
import { atBits, codebooks, FIXED_LEVEL_MAX, learnedLevelMax, oddZeroOf, PAIRED_BITS } from "./codebooks.ts";

/** How a range of floats is mapped to integers, with TorchAO's names and meanings, or to the levels of a codebook. */
export const mappingTypes = ["symmetric", "symmetric_no_clipping_err", "asymmetric", "codebook", "kmeans"] as const;
/**
 * How scales and integers of a weight are chosen: from its range, by least squares, by a search for the least squared
 * error, or by the activations of a text.
 */
export const algorithms = ["affine", "hqq_scale_only", "mse", "imatrix", "gptq", "awq", "awq+gptq"] as const;
/**
 * Types of stored scales. "i8": integers of 8 bits, times a binary16 factor that 256 weights of a row share, as those of
 * GGUF's K-quants and of IQ4_XS.
 */
export const scaleDTypes = ["f32", "f16", "i8"] as const satisfies readonly (ScaleDType | FactoredScale)[];
/** Type of a scheme's stored scales. */
type StoredScale = (typeof scaleDTypes)[number];
/** Sizes of groups whose scales may be integers. */
const INTEGER_SCALE_GROUPS: readonly GroupSize[] = [16, 32];

/**
 * TorchAO's MappingType: how the range of a group maps to the integers. "codebook": to the 2^bits uneven levels of
 * `codebooks`, which suit weights better than even steps. "kmeans": to 2^bits levels that are learned from the weights, a
 * codebook for each matrix, or for those that read the same inputs.
 */
export type MappingType = (typeof mappingTypes)[number];
/**
 * TorchAO's IntxChooseQParamsAlgorithm ("affine", "hqq_scale_only"); the scale, and zero point, of least squared error
 * ("mse"); and those that look at activations: errors that count as much as their inputs do (llama.cpp's importance
 * matrix, "imatrix"), GPTQ (arXiv 2210.17323), AWQ (arXiv 2306.00978), and GPTQ of weights that AWQ scaled.
 */
export type Algorithm = (typeof algorithms)[number];

const withActivations: ReadonlySet<Algorithm> = new Set(["imatrix", "gptq", "awq", "awq+gptq"]);

/** Whether an algorithm looks at activations, so that `calibrate` has to run before the model is compiled. */
export function needsActivations(algorithm: Algorithm): boolean {
  return withActivations.has(algorithm);
}

/**
 * Activations that share a scale where they are quantized as they come: blocks of 32 neighbours, or rows, with a zero point
 * each (TorchAO's PerToken).
 */
const activationGranularities = ["per_block", "per_token"] as const;
type ActivationGranularity = (typeof activationGranularities)[number];

/** Weights along k that share a scale; "axis" is one scale a row (TorchAO's PerAxis(0)). */
export type GroupSize = number | "axis";

/** Rows of a matrix from where the range before ends, whose scheme differs from the rest's. */
export interface RowRange {
  /** Number of rows, a multiple of 32. */
  readonly rows: number;
  /** Bits of a weight, 1..8. */
  readonly bits: number;
  /** Weights of a row that share a scale. Default: as many as in the rest, or 32 where so many bits have no groups of 16. */
  readonly groupSize?: GroupSize;
  /** How weights become integers. Default: as in the rest, or symmetric where there is no codebook of so many bits. */
  readonly mappingType?: MappingType;
}

export interface Scheme {
  /** Bits of one weight, 1..8. */
  readonly bits: number;
  /** Weights of a row that share a scale, or "axis" for one scale a row. */
  readonly groupSize: GroupSize;
  /** Whether zero points are used, and which integers are. */
  readonly mappingType: MappingType;
  /** How scales are chosen. */
  readonly algorithm: Algorithm;
  /** Type that scales are stored in. */
  readonly scaleDType: StoredScale;
  /** Activations that share a scale; only where they are quantized. */
  readonly activationGranularity?: ActivationGranularity;
  /**
   * Bits of the first rows of a table or head, those of the lowest token ids, which are the most frequent; the rows after them
   * have `bits`. Absent where all rows are alike.
   */
  readonly ranges?: readonly RowRange[];
}

/** Whether integers are places in a codebook of 2^bits levels. */
export function hasCodebook(mappingType: MappingType): boolean {
  return mappingType === "codebook" || mappingType === "kmeans";
}

/** Throws InvalidArgumentError, beginning with `caller`, unless every field holds one of its allowed values. */
export function checkScheme(caller: string, scheme: Scheme): void {
  const { bits, groupSize, mappingType, algorithm, scaleDType } = scheme;
  if (!Number.isInteger(bits) || bits < 1 || bits > 8)
    throw new InvalidArgumentError(`${caller}: bits must be a whole number from 1 to 8, got ${shown(bits)}`);
  if (groupSize !== "axis" && (!Number.isSafeInteger(groupSize) || groupSize < 1))
    throw new InvalidArgumentError(
      `${caller}: groupSize must be at least 1 and whole, or "axis" for one scale a row, got ${shown(groupSize)}`,
    );
  checkName(caller, "mappingType", mappingType, mappingTypes);
  checkName(caller, "algorithm", algorithm, algorithms);
  checkName(caller, "scaleDType", scaleDType, scaleDTypes);
  if (scheme.activationGranularity !== undefined)
    checkName(caller, "activationGranularity", scheme.activationGranularity, activationGranularities);
  if (algorithm === "hqq_scale_only" && mappingType === "asymmetric")
    throw new InvalidArgumentError(
      `${caller}: algorithm "hqq_scale_only" has no zero points; choose a symmetric mappingType or algorithm "affine"`,
    );
  checkIntegerScales(caller, scheme);
  if (scheme.ranges !== undefined) checkRanges(caller, scheme, scheme.ranges);
  if (!hasCodebook(mappingType)) return;
  if (codebooks[bits] === undefined)
    throw new InvalidArgumentError(
      `${caller}: mappingType "${mappingType}" is for bits ${Object.keys(codebooks).join(", ")}, got ${bits}; choose another mappingType`,
    );
  if (algorithm === "affine" || algorithm === "hqq_scale_only")
    throw new InvalidArgumentError(
      `${caller}: algorithm "${algorithm}" has no codebooks; choose "mse", or another mappingType`,
    );
}

/** Whether scales may be integers of 8 bits, in groups of a size and weights of some bits. */
export function hasIntegerScales(bits: number, groupSize: GroupSize): boolean {
  return INTEGER_SCALE_GROUPS.includes(groupSize) && (groupSize !== 16 || PAIRED_BITS.includes(bits));
}

/**
 * InvalidArgumentError for integer scales where groups have another size, zero points, or scales that TorchAO's rules choose.
 */
function checkIntegerScales(caller: string, { bits, groupSize, mappingType, algorithm, scaleDType }: Scheme): void {
  if (scaleDType !== "i8") return;
  const refuse = (expected: string, found: string) => {
    throw new InvalidArgumentError(`${caller}: scaleDType "i8" is for ${expected}, got ${found}`);
  };
  if (!INTEGER_SCALE_GROUPS.includes(groupSize)) refuse("groups of 16 or 32", shown(groupSize));
  if (groupSize === 16 && !PAIRED_BITS.includes(bits))
    refuse(`groups of 16 of weights of ${PAIRED_BITS.join(", ")} bits`, `${bits} bits`);
  if (mappingType === "asymmetric") refuse("mappings without zero points", shown(mappingType));
  if (algorithm === "affine" || algorithm === "hqq_scale_only")
    refuse('algorithm "mse" and those of texts', shown(algorithm));
}

/** Rows of a range fill the panels of every packed layout. */
export const RANGE_STEP = 32;
/** Most ranges of a matrix, each of which is a call of its own. */
export const RANGES_MAX = 4;
const RANGE_FIELDS: readonly string[] = ["rows", "bits", "groupSize", "mappingType"] satisfies (keyof RowRange)[];

/** InvalidArgumentError for anything but a short list of ranges of valid schemes. */
function checkRanges(caller: string, scheme: Scheme, ranges: readonly RowRange[]): void {
  const refuse = (expected: string, found: unknown) => {
    throw new InvalidArgumentError(`${caller}: ranges: expected ${expected}, got ${shown(found)}`);
  };
  if (!Array.isArray(ranges) || ranges.length === 0 || ranges.length > RANGES_MAX)
    refuse(`a list of 1 to ${RANGES_MAX} objects with rows and bits`, ranges);
  for (const range of ranges) {
    if (typeof range !== "object" || range === null) refuse("an object with rows and bits", range);
    const unknown = Object.keys(range).find((field) => !RANGE_FIELDS.includes(field));
    if (unknown !== undefined) refuse(`fields ${RANGE_FIELDS.join(", ")}`, unknown);
    const { rows } = range;
    if (!Number.isSafeInteger(rows) || rows < 1 || rows % RANGE_STEP !== 0)
      refuse(`rows that are a multiple of ${RANGE_STEP}`, rows);
  }
  if (scheme.algorithm === "awq" || scheme.algorithm === "awq+gptq")
    throw new InvalidArgumentError(
      `${caller}: algorithm "${scheme.algorithm}" has no ranges; choose "imatrix" or "gptq"`,
    );
  for (const part of schemesOfRows(0, scheme).slice(0, -1)) checkScheme(`${caller}: ranges`, part.scheme);
}

/** Neighbouring rows of a matrix, and their scheme. */
export interface SchemeOfRows<S> {
  /** Index of the first row. */
  readonly first: number;
  /** Number of rows. */
  readonly rows: number;
  /** Scheme of these rows, without ranges. */
  readonly scheme: Omit<S, "ranges">;
}

/** The schemes of the rows of a matrix of `n` rows, in order; one for a scheme without ranges. */
export function schemesOfRows<S extends Scheme>(n: number, { ranges = [], ...rest }: S): SchemeOfRows<S>[] {
  const found: SchemeOfRows<S>[] = [];
  let first = 0;
  for (const { rows, bits, ...given } of ranges) {
    found.push({ first, rows, scheme: { ...atBits(rest, bits), ...given } });
    first += rows;
  }
  return [...found, { first, rows: n - first, scheme: rest }];
}

function checkName(caller: string, field: string, value: unknown, allowed: readonly string[]): void {
  if (typeof value !== "string" || !allowed.includes(value))
    throw new InvalidArgumentError(`${caller}: ${field} must be one of ${allowed.join(", ")}, got ${shown(value)}`);
}

/** Zero point of groups with odd integer scales, which codebooks with integer scales have. */
function oddZeroOfScheme({ bits, mappingType, scaleDType }: Scheme): number | undefined {
  if (scaleDType !== "i8" || !hasCodebook(mappingType)) return undefined;
  return oddZeroOf(bits, mappingType === "kmeans" ? learnedLevelMax(bits) : FIXED_LEVEL_MAX);
}

/** Describes the quantized weights [n, k] of a valid scheme, without any values. */
export function weightSpec(n: number, k: number, scheme: Scheme): WeightSpec & Pick<Scheme, "scaleDType"> {
  const { bits, groupSize, mappingType, scaleDType } = scheme;
  const isAsymmetric = mappingType === "asymmetric";
  const oddZero = oddZeroOfScheme(scheme);
  return {
    bits,
    n,
    k,
    groupSize: groupSize === "axis" ? k : scaleDType === "i8" ? groupSize : Math.min(groupSize, k),
    hasZeros: isAsymmetric || oddZero !== undefined,
    hasLevels: hasCodebook(mappingType) || (bits === 1 && !isAsymmetric),
    scaleDType,
    ...(oddZero !== undefined && { oddZero }),
  };
}
