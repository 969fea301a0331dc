/** Checked access to a quantized checkpoint's module tensors and config fields, which all its readers share. */
import type { DType } from "../../dtype.ts";
import { InvalidFileError, ShapeError } from "../../errors.ts";
import { isSameShape, type Tensor } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { describe, type JsonObject } from "../json.ts";
import type { OpenTensors, TensorInfo } from "../tensor-source.ts";

/** A quantization method of checkpoints, and its reader. */
export interface QuantizedFormat {
  /** Name for messages. */
  readonly name: string;
  /** Values of `quant_method`, in lower case. */
  readonly methods: readonly string[];
  /** Reads all quantized modules as matrices. Reads headers and index tensors only; errors name the tensor and the field. */
  read(files: QuantizedFiles): Promise<readonly ComputedMatrix[]>;
  /** Whether a checkpoint with these settings has float weights. Default: no. */
  hasFloats?(settings: JsonObject): boolean;
}

/** Types of scales. */
export const floatTypes = ["f32", "f16", "bf16"] as const satisfies readonly DType[];

/** A checkpoint whose config says that its weights are quantized. */
export class QuantizedFiles {
  readonly folder: string;
  readonly configFile: string;
  /** `quantization_config`. */
  readonly settings: JsonObject;
  readonly tensors: OpenTensors;
  /** Whole tensors of the current module that are kept. */
  readonly #kept = new Map<string, Promise<Tensor>>();
  #module = "";

  constructor(folder: string, configFile: string, settings: JsonObject, tensors: OpenTensors) {
    this.folder = folder;
    this.configFile = configFile;
    this.settings = settings;
    this.tensors = tensors;
  }

  /** Names of the modules that have a tensor of this name. */
  modules(part: string): readonly string[] {
    const ending = `.${part}`;
    return this.tensors.names.filter((name) => name.endsWith(ending)).map((name) => name.slice(0, -ending.length));
  }

  /** Full names of those of `parts` that a module has. */
  partsOf(module: string, parts: readonly string[]): readonly string[] {
    return parts.map((part) => `${module}.${part}`).filter((name) => this.tensors.has(name));
  }

  /** Type and shape of a required tensor. InvalidFileError or ShapeError that names it. */
  info(name: string, types: readonly DType[], dimensions?: number): TensorInfo {
    if (!this.tensors.has(name))
      throw new InvalidFileError(this.folder, `expected tensor ${name}, which the checkpoint lacks`);
    const info = this.tensors.info(name);
    if (!types.includes(info.dtype))
      throw new ShapeError(
        `${this.folder}, tensor ${name}: expected dtype ${types.join(", ")} but found ${this.tensors.storedType?.(name) ?? info.dtype}`,
      );
    if (dimensions !== undefined && info.shape.length !== dimensions)
      throw this.shapeError(name, `${dimensions} dimensions`, info.shape);
    return info;
  }

  /** Type and shape of a required tensor, which must be one of these types and shapes. */
  expect(name: string, types: readonly DType[], ...shapes: readonly (readonly number[])[]): TensorInfo {
    const info = this.info(name, types);
    if (shapes.some((shape) => isSameShape(shape, info.shape))) return info;
    throw this.shapeError(name, shapes.map((shape) => `shape [${shape}]`).join(" or "), info.shape);
  }

  shapeError(name: string, expected: string, shape: readonly number[]): ShapeError {
    return new ShapeError(`${this.folder}, tensor ${name}: expected ${expected} but found [${shape}]`);
  }

  /** The error for a tensor with an unexpected value. */
  valueError(name: string, expected: string, found: number | string): InvalidFileError {
    return new InvalidFileError(this.folder, `tensor ${name}: expected ${expected} but found ${found}`);
  }

  /** The error for an unexpected config field; `field` is within `quantization_config`. */
  settingError(field: string, expected: string, found: unknown): InvalidFileError {
    return new InvalidFileError(
      this.configFile,
      `quantization_config.${field}: expected ${expected} but found ${describe(found)}`,
    );
  }

  /** A config field as a whole number from `low` to `high`; null when it is absent or null. */
  whole(field: string, low: number, high: number, settings = this.settings): number | null {
    const value = settings[field] ?? null;
    if (value === null) return null;
    if (Number.isInteger(value) && (value as number) >= low && (value as number) <= high) return value as number;
    throw this.settingError(field, `a whole number from ${low} to ${high}`, value);
  }

  boolean(field: string, fallback: boolean, settings = this.settings): boolean {
    const value = settings[field] ?? fallback;
    if (typeof value === "boolean") return value;
    throw this.settingError(field, "true or false", value);
  }

  text(field: string, settings = this.settings): string | null {
    const value = settings[field] ?? null;
    if (value === null || typeof value === "string") return value;
    throw this.settingError(field, "a name", value);
  }

  /**
   * Reads a module's tensor whole, where its rows are not those of the matrix. It is kept until `isEnd`, or until another
   * module is read, so that reading a matrix by rows reads its file once.
   */
  readWhole(module: string, part: string, isEnd: boolean): Promise<Tensor> {
    if (module !== this.#module) this.#kept.clear();
    this.#module = module;
    const name = `${module}.${part}`;
    const tensor = this.#kept.get(name) ?? this.tensors.read(name);
    if (isEnd) this.#kept.delete(name);
    else this.#kept.set(name, tensor);
    return tensor;
  }
}
