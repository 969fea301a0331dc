/** Scales of blocks of a matrix: per tensor, row, group of a row, or two-dimensional block. */
import { UnsupportedError } from "../../errors.ts";
import { elementCount, toFloat32 } from "../../tensor.ts";
import { floatTypes, type QuantizedFiles } from "./files.ts";
import { float8Values } from "./small-floats.ts";

/** Shape of the blocks that share a scale. */
export interface ScaleBlocks {
  readonly rows: number;
  readonly columns: number;
}

/**
 * Infers the blocks of a matrix [n, k] from the shape of its scales: one for all, one per row, blocks as in `block` (the last
 * may be smaller), or equal parts of each row. ShapeError for another shape.
 */
export function scaleBlocks(
  files: QuantizedFiles,
  name: string,
  [n, k]: readonly [number, number],
  block: ScaleBlocks | null,
): ScaleBlocks {
  const { shape } = files.tensors.info(name);
  if (elementCount(shape) === 1) return { rows: n, columns: k };
  const [rows = 0, columns = 1] = shape;
  if (shape.length <= 2 && rows === n && columns === 1) return { rows: 1, columns: k };
  const down = block && Math.ceil(n / block.rows);
  const across = block && Math.ceil(k / block.columns);
  if (shape.length === 2 && rows === down && columns === across) return block!;
  if (shape.length === 2 && block === null && rows === n && columns > 0 && k % columns === 0)
    return { rows: 1, columns: k / columns };
  throw files.shapeError(name, `[1], [${n},1]${block ? ` or [${down},${across}]` : " or equal groups of rows"}`, shape);
}

/** Reads scales as float32: floats of up to 32 bits, 8-bit floats, and exponents (e8m0). */
export async function readScales(files: QuantizedFiles, name: string): Promise<Float32Array> {
  const stored = scaleType(files, name);
  const tensor = await files.tensors.read(name);
  const values = stored ? Float32Array.from(tensor.data as Uint8Array, (code) => stored[code]!) : toFloat32(tensor);
  const bad = values.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0) throw files.valueError(name, "finite scales", `${values[bad]} at ${bad}`);
  return values;
}

/** Reads a scalar that divides weights and must not be 0. */
export async function readDivisor(files: QuantizedFiles, name: string): Promise<number> {
  const [divisor] = await readScales(files, name);
  if (divisor === 0) throw files.valueError(name, "a number that divides", 0);
  return divisor!;
}

/** Reads scales of rows, stored as floats or as codes of `values`. */
export async function rowScales(
  files: QuantizedFiles,
  name: string,
  values: Float32Array | null,
  first: number,
  count: number,
): Promise<Float32Array> {
  const tensor = await files.tensors.readRows(name, first, count);
  const scales = values ? Float32Array.from(tensor.data as Uint8Array, (code) => values[code]!) : toFloat32(tensor);
  const bad = scales.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0) throw files.valueError(name, "finite scales", `${scales[bad]} from row ${first} on`);
  return scales;
}

/** Values by code of 8-bit scales, null for wider ones; throws for other types. */
export function scaleType(files: QuantizedFiles, name: string): Float32Array | null {
  const { dtype } = files.info(name, [...floatTypes, "u8"]);
  if (dtype !== "u8") return null;
  const stored = files.tensors.storedType?.(name) ?? dtype;
  return float8Values(stored === "u8" || stored === "U8" ? "F8_E8M0" : stored);
}

/** Parses `weight_block_size` or `block_structure` of a config: two sizes, or null. */
export function blockSetting(files: QuantizedFiles, field: string, value: unknown): ScaleBlocks | null {
  if (value === undefined || value === null) return null;
  const sizes = typeof value === "string" ? value.split("x").map(Number) : value;
  const isSize = (size: unknown) => Number.isSafeInteger(size) && (size as number) > 0;
  if (!Array.isArray(sizes) || sizes.length !== 2 || !sizes.every(isSize))
    throw files.settingError(field, "two sizes", value);
  return { rows: sizes[0] as number, columns: sizes[1] as number };
}

/** UnsupportedError that lists the supported values of a field. */
export function unknownName(
  files: QuantizedFiles,
  field: string,
  known: readonly string[],
  found: string | null,
): UnsupportedError {
  return new UnsupportedError(
    `${files.configFile}: quantization_config.${field}: expected ${known.join(", ")} but found ${found === null ? "none" : JSON.stringify(found.slice(0, 80))}; use the model in one of those, or with float weights`,
  );
}
