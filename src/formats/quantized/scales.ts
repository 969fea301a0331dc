/** Scales of matrices by blocks of rows and columns: of the whole, of a row, of a group of a row, of a square. */
import { UnsupportedError } from "../../errors.ts";
import { elementCount, toFloat32 } from "../../tensor.ts";
import { floatTypes, type QuantizedFiles } from "./files.ts";
import { float8Values } from "./small-floats.ts";

/** Rows and columns of the blocks of a matrix. */
export interface ScaleBlocks {
  readonly rows: number;
  readonly columns: number;
}

/**
 * The blocks that scales of a matrix [n, k] are of, by their shape: one for all, one a row, or as `block` says (the last ones may be
 * smaller), or equal parts of each row. ShapeError for another shape.
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

/** Floats of up to 32 bits, those of 8 bits and integers that are exponents (e8m0) included. */
export async function readScales(files: QuantizedFiles, name: string): Promise<Float32Array> {
  const stored = scaleType(files, name);
  const tensor = await files.tensors.read(name);
  const values = stored ? Float32Array.from(tensor.data as Uint8Array, (code) => stored[code]!) : toFloat32(tensor);
  const bad = values.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0) throw files.valueError(name, "finite scales", `${values[bad]} at ${bad}`);
  return values;
}

/** The one number of a tensor that divides weights, which is not 0. */
export async function readDivisor(files: QuantizedFiles, name: string): Promise<number> {
  const [divisor] = await readScales(files, name);
  if (divisor === 0) throw files.valueError(name, "a number that divides", 0);
  return divisor!;
}

/** Scales of rows, stored as floats or as codes of `values`. */
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

/** Values by code of scales of 8 bits, null for those of more; errors for others. */
export function scaleType(files: QuantizedFiles, name: string): Float32Array | null {
  const { dtype } = files.info(name, [...floatTypes, "u8"]);
  if (dtype !== "u8") return null;
  const stored = files.tensors.storedType?.(name) ?? dtype;
  return float8Values(stored === "u8" || stored === "U8" ? "F8_E8M0" : stored);
}

/** `weight_block_size` or `block_structure` of a config: two sizes, or none. */
export function blockSetting(files: QuantizedFiles, field: string, value: unknown): ScaleBlocks | null {
  if (value === undefined || value === null) return null;
  const sizes = typeof value === "string" ? value.split("x").map(Number) : value;
  const isSize = (size: unknown) => Number.isSafeInteger(size) && (size as number) > 0;
  if (!Array.isArray(sizes) || sizes.length !== 2 || !sizes.every(isSize))
    throw files.settingError(field, "two sizes", value);
  return { rows: sizes[0] as number, columns: sizes[1] as number };
}

/** UnsupportedError that says which names a field may have. */
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
