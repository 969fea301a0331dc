/** Encodes all linear layers of a float model but the head, layer by layer, so that it can stop and go on later. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  checkOptions,
  checksum,
  checkWhole,
  InvalidArgumentError,
  InvalidFileError,
  LowbitError,
  type Tensor,
  type TypedArray,
  UnsupportedError,
} from "lowbit/extension";
import {
  checkFiniteInputs,
  checkModel,
  type EncodingOptions,
  finiteFloats,
  type LinearVisitor,
  type Matrix,
  type Model,
  makeFolder,
  matrix,
  openTensorFile,
  visitLinearLayers,
  type WeightSlot,
  writeSafetensors,
} from "lowbit/extension/checkpoint";
import { type AqlmForm, type AqlmWeights, checkForm, type Floats, formCounts } from "../form.ts";
import { floatsOf } from "../reference.ts";
import { type AqlmFormat, type AqlmWeight, aqlmWeight } from "../weight.ts";
import { encodeLayer, type LayerHooks } from "./layer.ts";
import type { AqlmMode } from "./mode.ts";

/**
 * How `encodeAqlm` encodes: the mode, a text to calibrate with, layers to leave out, and where finished layers are
 * kept.
 */
export interface EncodeOptions extends AqlmMode, EncodingOptions {}

const IN_GROUP = 8;
const TOKENS_DEFAULT = 4096;
/** Codebooks of 8 bits or fewer: the search compares with every vector. */
const BITS_MAX = 8;

/**
 * Replaces the linear layers of `model`, but for the head, by AQLM weights, whatever configurations they had: all of them, or
 * none when this fails. InvalidArgumentError for a calibrated model (encode first, then calibrate other layers), UnsupportedError for weights in a format of their own, InvalidFileError for weights that are not finite.
 */
export async function encodeAqlm(model: Model, options: EncodeOptions): Promise<void> {
  checkModel(model);
  checkOptions(options);
  checkWhole("options.codebooks", options.codebooks, 1);
  checkWhole("options.bits", options.bits, 1);
  if (!(Number.isInteger(options.bits) && options.bits <= BITS_MAX))
    throw new InvalidArgumentError(
      `bits of aqlm-${options.codebooks}x${String(options.bits)}: layers are encoded with at most ${BITS_MAX} bits a code`,
    );
  model.checkOpen();
  if (model.isCalibrated)
    throw new InvalidArgumentError(
      `encodeAqlm: ${model.name} is calibrated already; load the checkpoint again, encode, then calibrate`,
    );
  const layers = model.network.slots.filter(({ role }) => role === "linear").slice(0, -1);
  const slots = layers.filter(({ name }) => !options.skip?.(name));
  for (const slot of slots) checkSource(model, slot, options);
  const total = slots.reduce((sum, slot) => sum + weightCount(slot), 0);
  if (options.folder) await makeFolder(options.folder);
  const encoded = new Map<string, AqlmWeight>();
  let done = 0;
  const report = (slot: WeightSlot, share: number) => options.onProgress?.(done + share * weightCount(slot), total);
  const finish = (slot: WeightSlot, weight: AqlmWeight) => {
    encoded.set(slot.name, weight);
    done += weightCount(slot);
    report(slot, 0);
  };
  for (const slot of slots) {
    const weight = options.folder ? await restored(model, slot, options) : null;
    if (weight) finish(slot, weight);
  }
  const encode = async (slot: WeightSlot, hessian: Matrix | null) => {
    const onStep = (step: number, steps: number) => report(slot, step / steps);
    finish(slot, await encodeSlot(model, slot, hessian, { ...options, onStep }));
  };
  const missing = slots.filter(({ name }) => !encoded.has(name));
  const { calibrationText: text, calibrationTokens: maxTokens = TOKENS_DEFAULT, signal } = options;
  if (text === undefined) for (const slot of missing) await encode(slot, null);
  else if (missing.length > 0) {
    // All layers see what they would in the float model, whichever are there from before.
    const visit: LinearVisitor = async ({ name, hessian }) => {
      const slot = missing.find((candidate) => candidate.name === name);
      if (slot) await encode(slot, hessian());
      return null;
    };
    await visitLinearLayers(model, text, visit, { maxTokens, signal });
  }
  for (const [name, weight] of encoded) model.replaceWeight(name, weight);
}

const weightCount = ({ shape }: WeightSlot) => shape[0]! * shape[1]!;

/**
 * Low-bit weights of a checkpoint are read as the floats that they stand for; formats of their own are not. Sizes that no
 * form has are refused before the first layer is encoded.
 */
function checkSource(model: Model, slot: WeightSlot, options: EncodeOptions): void {
  const { codebooks, bits } = formOf(slot, options);
  const { name } = slot;
  const { kind } = model.weight(name, { float: true }).format;
  if (kind !== "float")
    throw new UnsupportedError(
      `${name}: expected weights that are floats or integers with scales to encode as aqlm-${codebooks}x${bits} but found ${kind}`,
    );
}

function formOf(slot: WeightSlot, { codebooks, bits }: EncodeOptions): AqlmForm {
  const [n, k] = slot.shape as [number, number];
  const form = { n, k, codebooks, bits, inGroup: IN_GROUP, outGroup: 1 };
  checkForm(slot.name, form);
  return form;
}

/** The weights of a layer in the floating point that the checkpoint has them in. InvalidFileError for NaN or infinity. */
async function readFloats(model: Model, { name }: WeightSlot): Promise<{ stored: Tensor; values: Float32Array }> {
  const stored = (await model.weight(name, { float: true }).load()) as Tensor;
  const values = finiteFloats(model.checkpoint.folder, name, stored, "weights to encode");
  return { stored, values };
}

async function encodeSlot(
  model: Model,
  slot: WeightSlot,
  hessian: Matrix | null,
  options: EncodeOptions & LayerHooks,
): Promise<AqlmWeight> {
  const form = formOf(slot, options);
  const { stored, values } = await readFloats(model, slot);
  if (hessian) checkFiniteInputs(slot.name, hessian.data);
  const encoded = await encodeLayer(form, matrix(form.n, form.k, values), hessian, options);
  if (![encoded.vectors, encoded.scales].every((part) => floatsOf(part).every(Number.isFinite)))
    throw new InvalidFileError(
      model.checkpoint.folder,
      `tensor ${slot.name}: expected weights to encode that scales of f32 can hold but found larger ones`,
    );
  if (!options.folder) return aqlmWeight(slot.name, form, floatsIn(encoded), async () => encoded);
  const path = pathOf(options.folder, slot);
  const made = fingerprint(options, stored);
  await save(path, encoded, made);
  return loadedLater(slot, { form, floats: floatsIn(encoded) }, path, made);
}

/** What encoded weights are stored in. */
function floatsIn({ scales }: Pick<AqlmWeights, "scales">): AqlmFormat["floats"] {
  return { vectors: "f16", scales: scales instanceof Float32Array ? "f32" : "f16" };
}

const pathOf = (folder: string, slot: WeightSlot) => join(folder, `${slot.name}.safetensors`);

/** What an encoding depends on, for short. */
function fingerprint(options: EncodeOptions, { data }: Tensor): string {
  const { codebooks, bits, calibrationText = "", calibrationTokens = TOKENS_DEFAULT } = options;
  const text = new TextEncoder().encode(calibrationText);
  const hashes = [text, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)].map(checksum);
  return [codebooks, bits, text.length, calibrationTokens, ...hashes].join(" ");
}

async function save(path: string, weights: AqlmWeights, made: string): Promise<void> {
  const { outputs, inputs, entries } = formCounts(weights);
  const entry = (name: string, dtype: "u8" | "f16" | "f32", shape: number[], data: TypedArray) => ({
    ...{ name, dtype, shape, data: async () => data },
  });
  await writeSafetensors(
    path,
    [
      entry("codes", "u8", [outputs, inputs, weights.codebooks], weights.codes),
      entry("codebooks", "f16", [weights.codebooks, entries, 1, weights.inGroup], weights.vectors),
      entry("scales", floatsIn(weights).scales, [outputs, 1, 1, 1], weights.scales),
    ],
    { made, checksums: checksums(weights) },
  );
}

function checksums({ codes, vectors, scales }: Pick<AqlmWeights, "codes" | "vectors" | "scales">): string {
  const bytes = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
    new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
  return [codes, vectors, scales].map((part) => checksum(bytes(part))).join(" ");
}

/** A layer of an earlier run; null when there is none, one of other weights or options, or one that is damaged. */
async function restored(model: Model, slot: WeightSlot, options: EncodeOptions): Promise<AqlmWeight | null> {
  const path = pathOf(options.folder!, slot);
  if (!existsSync(path)) return null;
  const part = await readPart(path).catch((cause: unknown) => {
    if (!(cause instanceof LowbitError)) throw cause;
    options.onDamagedPart?.(`encoding ${slot.name} again: ${cause.message}`);
    return null;
  });
  if (part === null) return null;
  const { stored } = await readFloats(model, slot);
  const made = fingerprint(options, stored);
  const format = { form: formOf(slot, options), floats: floatsIn(part.data) };
  return part.made === made ? loadedLater(slot, format, path, made) : null;
}

interface Part {
  /** The fingerprint that it was saved with. */
  readonly made: string;
  readonly data: Pick<AqlmWeights, "codes" | "vectors" | "scales">;
}

/** A layer that was saved. InvalidFileError for one that is not whole. */
async function readPart(path: string): Promise<Part> {
  const file = await openTensorFile(path);
  try {
    const data = {
      codes: (await file.read("codes")).data as Uint8Array,
      vectors: (await file.read("codebooks")).data as Uint16Array,
      scales: (await file.read("scales")).data as Floats,
    };
    const found = checksums(data);
    // Earlier versions saved none.
    if ((file.metadata.get("checksums") ?? found) !== found)
      throw new InvalidFileError(path, "its checksum does not match");
    return { made: file.metadata.get("made") ?? "", data };
  } finally {
    await file.close();
  }
}

/** A layer that is read again when it is needed. InvalidFileError when another run has put one of its own in its place. */
function loadedLater(
  slot: WeightSlot,
  { form, floats }: Omit<AqlmFormat, "kind">,
  path: string,
  made: string,
): AqlmWeight {
  return aqlmWeight(slot.name, form, floats, async () => {
    const part = await readPart(path);
    if (part.made !== made)
      throw new InvalidFileError(
        path,
        `expected ${slot.name} as it was encoded here but found it of other weights or options: another run writes to the folder`,
      );
    return { ...form, ...part.data };
  });
}
