/**
 * AQLM weights in Hugging Face checkpoints: `P.codes`, `P.codebooks` and `P.scales` instead of `P.weight`.
 * A layer is AQLM when it has codes, whatever the config lists; the config's numbers must agree with the tensors.
 */

import { type DType, InvalidFileError, isSameShape, ShapeError, type Tensor, UnsupportedError } from "lowbit/extension";
import {
  type Checkpoint,
  finiteFloats,
  isSameMethod,
  moduleOf,
  quantMethod,
  type StoredWeight,
  type TensorInfo,
  type WeightSlot,
  type WeightStorage,
} from "lowbit/extension/checkpoint";
import { type AqlmForm, type AqlmWeights, checkForm, codeArray, type Floats, formCounts } from "../form.ts";
import { type AqlmWeight, aqlmWeight } from "../weight.ts";

/** One AQLM layer of a checkpoint: where its tensors are, and how to complain about them. */
interface Layer {
  readonly checkpoint: Checkpoint;
  readonly module: string;
}

const parts = ["codes", "codebooks", "scales"] as const;
type Part = (typeof parts)[number];

export const aqlmStorage: WeightStorage = {
  name: "AQLM",
  find(checkpoint, slot) {
    if (!slot.name.endsWith(".weight")) return null;
    const layer = { checkpoint, module: moduleOf(slot.name) };
    return isStored(layer, slot) ? openLayer(layer, slot) : null;
  },
};

/**
 * Whether a slot has codes. InvalidFileError for codebooks without codes and for codes beside floats, UnsupportedError
 * for codes of other methods and of what is no linear layer. Scales alone are of other methods.
 */
function isStored({ checkpoint, module }: Layer, { name, role }: WeightSlot): boolean {
  const { tensors, folder, configFile } = checkpoint;
  const codes = `${module}.codes`;
  const method = quantMethod(checkpoint);
  const isAqlm = method === null || isSameMethod(method, aqlmStorage.name);
  if (!tensors.has(codes)) {
    if (!isAqlm || tensors.has(name) || !tensors.has(`${module}.codebooks`)) return false;
    throw new InvalidFileError(folder, `expected tensor ${codes}, which AQLM layers have beside ${module}.codebooks`);
  }
  if (!isAqlm)
    throw new UnsupportedError(
      `${configFile}: quantization_config.quant_method: expected "aqlm" for tensor ${codes} but found ${JSON.stringify(method)}`,
    );
  if (tensors.has(name))
    throw new InvalidFileError(
      folder,
      `expected one of the tensors ${codes} and ${name}, which both give the weight, but found both`,
    );
  if (role === "linear") return true;
  const what = role === "embedding" ? "the embedding table" : "a vector";
  throw new UnsupportedError(
    `${folder}: expected tensor ${name}, floats, for ${what} but found ${codes}: of AQLM, linear layers only are read`,
  );
}

/** An object of the config; null for anything else. */
function record(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : null;
}

function fail(layer: Layer, part: Part, problem: string): never {
  throw new ShapeError(`${layer.checkpoint.folder}, tensor ${layer.module}.${part}: ${problem}`);
}

function infoOf({ checkpoint, module }: Layer, part: Part): TensorInfo {
  const name = `${module}.${part}`;
  if (!checkpoint.tensors.has(name))
    throw new InvalidFileError(checkpoint.folder, `expected tensor ${name}, which AQLM layers have beside their codes`);
  return checkpoint.tensors.info(name);
}

function openLayer(layer: Layer, slot: WeightSlot): AqlmWeight & StoredWeight {
  const [codes, vectors, scales] = parts.map((part) => infoOf(layer, part)) as [TensorInfo, TensorInfo, TensorInfo];
  const stored = formOf(layer, slot, vectors);
  const form = wholeGroups(stored);
  checkForm(`${layer.checkpoint.folder}, tensor ${layer.module}.codebooks`, form);
  checkSizes(layer, stored, codes, scales);
  const floats = { vectors: floatType(layer, "codebooks", vectors), scales: floatType(layer, "scales", scales) };
  const load = lastKept(() => read(layer, stored, form));
  const verify = async () => {
    for (const part of ["codebooks", "scales"] as const) await readFloats(layer, part);
  };
  return { ...aqlmWeight(slot.name, form, floats, load), verify };
}

/** Sizes from the codebooks, which must be those that config.json says. */
function formOf(layer: Layer, slot: WeightSlot, { shape }: TensorInfo): AqlmForm {
  const [n, k] = slot.shape as [number, number];
  const [codebooks, entries, outGroup, inGroup] = shape;
  const bits = Math.log2(entries ?? 0);
  if (shape.length !== 4 || !Number.isInteger(bits) || bits < 1)
    fail(layer, "codebooks", `expected shape [codebooks, 2^bits, out group, in group] but found [${shape}]`);
  const form = { n, k, codebooks: codebooks!, bits, inGroup: inGroup!, outGroup: outGroup! };
  const wanted = configForm(layer.checkpoint);
  if (wanted) {
    const expected = [wanted.codebooks, 2 ** wanted.bits, wanted.outGroup, wanted.inGroup];
    if (!isSameShape(expected, shape))
      fail(layer, "codebooks", `expected shape [${expected}] from config.json but found [${shape}]`);
  }
  return form;
}

/** Inputs of the shortest group that kernels know. */
const WHOLE_GROUP = 8;

/**
 * The form to read weights as: groups of 1, 2 or 4 inputs are the parts of whole ones, each part with codebooks of its own.
 * Codes then stand in the same order.
 */
function wholeGroups(stored: AqlmForm): AqlmForm {
  const groups = WHOLE_GROUP / stored.inGroup;
  if (groups <= 1 || !Number.isInteger(groups)) return stored;
  return { ...stored, codebooks: groups * stored.codebooks, inGroup: WHOLE_GROUP };
}

/** Vectors of stored codebooks as those of `form`, with zeros for the other parts of a group. */
function wholeVectors(vectors: Floats, stored: AqlmForm, form: AqlmForm): Floats {
  if (stored.inGroup === form.inGroup) return vectors;
  const groups = form.inGroup / stored.inGroup;
  const whole =
    vectors instanceof Uint16Array
      ? new Uint16Array(groups ** 2 * vectors.length)
      : new Float32Array(groups ** 2 * vectors.length);
  for (let group = 0; group < groups; group++)
    for (let i = 0; i < vectors.length; i++) {
      const [row, j] = [Math.floor(i / stored.inGroup), i % stored.inGroup];
      whole[groups * (group * vectors.length + row * stored.inGroup) + group * stored.inGroup + j] = vectors[i]!;
    }
  return whole;
}

/** The numbers of `quantization_config`, or of `aqlm` in checkpoints from before it; null when there is neither. */
function configForm({
  config,
  configFile,
}: Checkpoint): Pick<AqlmForm, "codebooks" | "bits" | "inGroup" | "outGroup"> | null {
  const fields = record(config.quantization_config ?? config.aqlm);
  if (!fields) return null;
  const number = (name: string, fallback: number) => {
    const value = Number(fields[name] ?? fallback);
    if (Number.isInteger(value)) return value;
    throw new InvalidFileError(
      configFile,
      `${name}: expected a whole number but found ${JSON.stringify(fields[name])}`,
    );
  };
  return {
    codebooks: number("num_codebooks", 1),
    bits: number("nbits_per_codebook", 16),
    inGroup: number("in_group_size", 8),
    outGroup: number("out_group_size", 1),
  };
}

function checkSizes(layer: Layer, form: AqlmForm, codes: TensorInfo, scales: TensorInfo): void {
  const { outputs, inputs } = formCounts(form);
  const sizes = [outputs, inputs, form.codebooks];
  const [first, second, ...rest] = codes.shape;
  const isPermuted = isSameShape([second!, first!, ...rest], sizes);
  const hint = isPermuted
    ? ", the order that the aqlm package leaves them in after running; convert the model again"
    : "";
  if (!isSameShape(codes.shape, sizes))
    fail(layer, "codes", `expected shape [${sizes}] but found [${codes.shape}]${hint}`);
  const types: readonly DType[] = form.bits <= 8 ? ["i8", "i16", "i32"] : ["i16", "i32"];
  if (!types.includes(codes.dtype))
    fail(layer, "codes", `expected dtype ${types.join(" or ")} for ${form.bits} bits but found ${codes.dtype}`);
  const count = scales.shape.reduce((product, size) => product * size, 1);
  if (scales.shape[0] !== outputs || count !== outputs)
    fail(layer, "scales", `expected shape [${outputs}, 1, 1, 1] but found [${scales.shape}]`);
}

/** f16 stays what it is; other float types become f32. */
function floatType(layer: Layer, part: Part, { dtype }: TensorInfo): "f16" | "f32" {
  if (dtype === "f16") return "f16";
  if (dtype === "f32" || dtype === "bf16") return "f32";
  return fail(layer, part, `expected dtype f16, bf16 or f32 but found ${dtype}`);
}

async function read(layer: Layer, stored: AqlmForm, form: AqlmForm): Promise<AqlmWeights> {
  const { tensors } = layer.checkpoint;
  const [codes, vectors, scales] = await Promise.all([
    tensors.read(`${layer.module}.codes`),
    readFloats(layer, "codebooks"),
    readFloats(layer, "scales"),
  ]);
  return {
    ...form,
    codes: unsignedCodes(layer, form, codes),
    vectors: wholeVectors(vectors, stored, form),
    scales,
  };
}

/** InvalidFileError for NaN and infinity. */
async function readFloats({ checkpoint, module }: Layer, part: Part): Promise<Floats> {
  const tensor = await checkpoint.tensors.read(`${module}.${part}`);
  const values = finiteFloats(checkpoint.folder, `${module}.${part}`, tensor, "numbers");
  return tensor.dtype === "f16" ? (tensor.data as Uint16Array) : values;
}

/** Codes are stored as two's complement of `bits` bits; ShapeError for one that is not. */
function unsignedCodes(layer: Layer, { bits }: AqlmForm, { data }: Tensor): Uint8Array | Uint16Array {
  const codes = codeArray(bits, data.length);
  const stored = data as Int8Array | Int16Array | Int32Array;
  if (8 * stored.BYTES_PER_ELEMENT === bits) {
    codes.set(stored);
    return codes;
  }
  const half = 2 ** (bits - 1);
  for (let i = 0; i < stored.length; i++) {
    const code = stored[i]!;
    if (code < -half || code >= half)
      fail(layer, "codes", `expected ${bits}-bit codes, ${-half}..${half - 1}, but found ${code} at ${i}`);
    codes[i] = code & (2 * half - 1);
  }
  return codes;
}

/** The three constants of a layer are read one after the other: what was read for the first serves all. */
function lastKept(load: () => Promise<AqlmWeights>): () => Promise<AqlmWeights> {
  let uses = 0;
  let data: Promise<AqlmWeights> | null = null;
  return () => {
    data ??= load();
    const result = data;
    if (++uses % parts.length === 0) data = null;
    return result;
  };
}
