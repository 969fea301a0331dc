/** What readers of quantized checkpoints share: the parts of modules by name, and fields of the config, both checked. */
import type { DType } from "../../dtype.ts";
import { InvalidFileError, ShapeError } from "../../errors.ts";
import { isSameShape, type Tensor } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { describe, type JsonObject } from "../json.ts";
import type { OpenTensors, TensorInfo } from "../tensor-source.ts";

/** The method that a quantized checkpoint names, and how its matrices are read. */
export interface QuantizedFormat {
  /** Name for messages. */
  readonly name: string;
  /** What `quant_method` says, in lower case. */
  readonly methods: readonly string[];
  /** The matrices of all quantized modules. Reads headers and index tensors only; errors name the tensor and the field. */
  read(files: QuantizedFiles): Promise<readonly ComputedMatrix[]>;
  /** Whether these settings are of a checkpoint of floats. Default: none is. */
  hasFloats?(settings: JsonObject): boolean;
}

/** Types that scales may have. */
export const floatTypes = ["f32", "f16", "bf16"] as const satisfies readonly DType[];

/** The files of a checkpoint whose config says that its weights are quantized. */
export class QuantizedFiles {
  readonly folder: string;
  readonly configFile: string;
  /** `quantization_config`. */
  readonly settings: JsonObject;
  readonly tensors: OpenTensors;
  /** Parts of the module that is read now. */
  readonly #kept = new Map<string, Promise<Tensor>>();
  #module = "";

  constructor(folder: string, configFile: string, settings: JsonObject, tensors: OpenTensors) {
    this.folder = folder;
    this.configFile = configFile;
    this.settings = settings;
    this.tensors = tensors;
  }

  /** Modules that have a tensor of this name. */
  modules(part: string): readonly string[] {
    const ending = `.${part}`;
    return this.tensors.names.filter((name) => name.endsWith(ending)).map((name) => name.slice(0, -ending.length));
  }

  /** Which of `parts` a module has. */
  partsOf(module: string, parts: readonly string[]): readonly string[] {
    return parts.map((part) => `${module}.${part}`).filter((name) => this.tensors.has(name));
  }

  /** Type and sizes of a tensor that must be there; InvalidFileError or ShapeError names it. */
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

  /** Facts of a tensor that must have one of these types and shapes. */
  expect(name: string, types: readonly DType[], ...shapes: readonly (readonly number[])[]): TensorInfo {
    const info = this.info(name, types);
    if (shapes.some((shape) => isSameShape(shape, info.shape))) return info;
    throw this.shapeError(name, shapes.map((shape) => `shape [${shape}]`).join(" or "), info.shape);
  }

  shapeError(name: string, expected: string, shape: readonly number[]): ShapeError {
    return new ShapeError(`${this.folder}, tensor ${name}: expected ${expected} but found [${shape}]`);
  }

  /** What a value of a tensor should be. */
  valueError(name: string, expected: string, found: number | string): InvalidFileError {
    return new InvalidFileError(this.folder, `tensor ${name}: expected ${expected} but found ${found}`);
  }

  /** What a field of the config should be; `field` is within `quantization_config`. */
  settingError(field: string, expected: string, found: unknown): InvalidFileError {
    return new InvalidFileError(
      this.configFile,
      `quantization_config.${field}: expected ${expected} but found ${describe(found)}`,
    );
  }

  /** A whole number of the config; null when it is absent or null. */
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
   * A whole tensor of a module, whose rows are not those of its matrix. It is kept until `isEnd`, or until parts of
   * another module are read, so that reading a matrix by rows reads its file once.
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
