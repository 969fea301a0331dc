/** Reads quantization modes, group sizes and embedding specs as typed on a command line, named as ExecuTorch's. */
import { checkOptions, checkString } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { codebooks } from "./codebooks.ts";
import {
  type ConfigOptions,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type QuantizationConfig,
} from "./config.ts";
import {
  type GroupSize,
  hasCodebook,
  hasIntegerScales,
  type MappingType,
  mappingTypes,
  RANGE_STEP,
  type RowRange,
} from "./scheme.ts";

/** The modes of `parseQmode`, for help texts. */
export const knownQmodes: readonly string[] = ["8da{1..8}w", "torchao:8da{1..8}w", "wo{1..8}w", "4w", "8w", "int8"];

const GROUP_SIZE = 32;

/**
 * Fills in options that are left open with the most accurate choice for its bytes:
 * - algorithm: "mse";
 * - mapping: a codebook up to 4 bits, symmetric above;
 * - groups and scales: 16 with scales of 8 bits for codebooks of 2 bits and more, else 32 with scales in f16. Where one of the
 *   two is given, the other is 32 or f16.
 *
 * TorchAO's algorithms keep TorchAO's defaults.
 */
export function searched(given: ConfigOptions & { readonly bits: number }): ConfigOptions {
  checkOptions(given);
  const { bits, ...options } = given;
  const { algorithm = "mse", groupSize, scaleDType } = options;
  if (algorithm === "affine" || algorithm === "hqq_scale_only") return { ...options, bits };
  const { mappingType = codebooks[bits] ? "codebook" : "symmetric" } = options;
  const isOpen = groupSize === undefined && scaleDType === undefined;
  const scales =
    isOpen && hasCodebook(mappingType) && hasIntegerScales(bits, 16)
      ? ({ groupSize: 16, scaleDType: "i8" } as const)
      : { groupSize: groupSize ?? GROUP_SIZE, scaleDType: scaleDType ?? "f16" };
  return { ...options, bits, algorithm, mappingType, ...scales };
}

/**
 * The configuration of a mode such as `8da4w`; `options` are the other command line options. Those undefined take their
 * defaults: one scale a row for 8-bit weight-only modes (and nothing else for `int8`), the rest as `searched` says.
 * - `8da{b}w`: int8 dynamic activations in blocks of 32, b-bit weights; `torchao:8da{b}w`: with one scale and zero point a row,
 *   and TorchAO's defaults;
 * - `wo{b}w`, `4w`, `8w`: weight only; `int8`: weight only, 8 bits, one scale a row.
 *
 * InvalidArgumentError for an unknown mode (listing those known, and `others` that the caller has) or option.
 */
export function parseQmode(
  qmode: string,
  options: Omit<ConfigOptions, "bits"> = {},
  others: readonly string[] = [],
): QuantizationConfig {
  checkString("qmode", qmode);
  checkOptions(options);
  const dynamic = /^(torchao:)?8da([1-8])w$/.exec(qmode);
  if (dynamic) {
    const isTorchao = dynamic[1] !== undefined;
    const activationGranularity = isTorchao ? "per_token" : "per_block";
    const all = { ...options, activationGranularity, bits: Number(dynamic[2]) } as const;
    return int8DynamicActivationIntxWeight(isTorchao ? all : searched(all));
  }
  const weightOnly = /^(?:wo([1-8])|([48]))w$/.exec(qmode);
  if (weightOnly) {
    const bits = Number(weightOnly[1] ?? weightOnly[2]);
    const { groupSize = bits === 8 ? "axis" : undefined, ...others } = options;
    const isOfTorchao = others.algorithm === "affine" || others.algorithm === "hqq_scale_only";
    return intxWeightOnly(
      searched({ ...others, bits, groupSize: groupSize ?? (isOfTorchao ? GROUP_SIZE : undefined) }),
    );
  }
  if (qmode === "int8") {
    if (options.groupSize !== undefined && options.groupSize !== "axis")
      throw new InvalidArgumentError(
        `qmode "int8" has one scale a row, got group size ${options.groupSize}; for groups use qmode "8w"`,
      );
    return intxWeightOnly(searched({ ...options, bits: 8, groupSize: "axis" }));
  }
  throw new InvalidArgumentError(`unknown qmode "${qmode}"; known are ${[...knownQmodes, ...others].join(", ")}`);
}

/** A group size as typed: a whole number, or `axis` (`per-axis`) for one scale a row. InvalidArgumentError for others. */
export function parseGroupSize(text: string): GroupSize {
  checkString("text", text);
  if (text === "axis" || text === "per-axis") return "axis";
  const size = /^\d+$/.test(text) ? Number(text) : 0;
  if (size < 1 || !Number.isSafeInteger(size))
    throw new InvalidArgumentError(
      `group size must be a whole number of at least 1, or "axis" for one scale a row, got "${text}"`,
    );
  return size;
}

/**
 * Parses `<bits>,<group size or axis>[,<mapping>]`, such as `4,32,symmetric`, and adds `options`. What neither says is filled
 * in by `searched`, or with TorchAO's defaults after `torchao:`. InvalidArgumentError for another form.
 */
export function parseEmbedding(spec: string, options: Omit<ConfigOptions, "bits"> = {}): ConfigOptions {
  checkString("spec", spec);
  checkOptions(options);
  const isTorchao = spec.startsWith("torchao:");
  const parts = spec.replace(/^torchao:/, "").split(",");
  const [bits = "", group = "", mapping] = parts.map((part) => part.trim());
  const problem =
    parts.length < 2 || parts.length > 3
      ? `${parts.length} fields`
      : !/^[1-8]$/.test(bits)
        ? `bits "${bits}"`
        : mapping !== undefined && !isMapping(mapping)
          ? `mapping "${mapping}"`
          : undefined;
  if (problem)
    throw new InvalidArgumentError(
      `embedding "${spec}": expected <bits 1..8>,<group size or axis>[,${mappingTypes.join("|")}], got ${problem}`,
    );
  const fields = {
    ...options,
    bits: Number(bits),
    groupSize: parseGroupSize(group),
    ...(mapping !== undefined && { mappingType: mapping as MappingType }),
  };
  return isTorchao ? fields : searched(fields);
}

/**
 * Parses bits of a table's first rows, `<bits>:<rows or share>` with commas between, such as `8:1024,6:20%`; shares are of all `n`
 * rows. InvalidArgumentError for another form, and for as many rows as there are.
 */
export function parseRowBits(spec: string, n: number): RowRange[] {
  checkString("spec", spec);
  let before = 0;
  return spec.split(",").map((part) => {
    const [, bits, rows, percent] = /^([1-8]):(\d+(?:\.\d+)?)(%?)$/.exec(part.trim()) ?? [];
    const count = percent ? (n * Number(rows)) / 100 : Number(rows);
    const end = RANGE_STEP * Math.round((before + count) / RANGE_STEP);
    if (bits === undefined || !(end > before && end < n))
      throw new InvalidArgumentError(
        `row bits "${spec}": expected <bits 1..8>:<rows or share>, ... of fewer than all ${n} rows, such as 6:20%, got "${part}"`,
      );
    const range = { rows: end - before, bits: Number(bits) };
    before = end;
    return range;
  });
}

function isMapping(name: string): name is MappingType {
  return (mappingTypes as readonly string[]).includes(name);
}
