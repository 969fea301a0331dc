/** Encodes all linear layers of a float model but the head, layer by layer, so that it can stop and go on later. */
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import {
  checksum,
  type InputObserver,
  InvalidArgumentError,
  type Model,
  observeInputs,
  openTensorFile,
  type Tensor,
  toFloat32,
  type WeightSlot,
  writeSafetensors,
} from "../../extension/index.ts";
import { type AqlmForm, type AqlmWeights, checkForm, formCounts } from "../form.ts";
import type { AqlmMode } from "../mode.ts";
import { aqlmWeight } from "../weight.ts";
import { encodeLayer } from "./layer.ts";
import { type Matrix, matrix, multiplyTransposed, transpose } from "./matrix.ts";

export interface EncodeOptions extends AqlmMode {
  /** Text whose activations weigh the errors; without one, errors of weights count alike. */
  readonly calibrationText?: string | undefined;
  /** Tokens of it that are read. Default 4096. */
  readonly calibrationTokens?: number | undefined;
  /** Folder for finished layers. What it has from before, made with the same options, is not computed again. */
  readonly folder?: string | undefined;
  onProgress?(doneWeights: number, totalWeights: number): void;
  readonly signal?: AbortSignal | undefined;
}

const IN_GROUP = 8;
const TOKENS_DEFAULT = 4096;
/** Codebooks of 8 bits or fewer: the search compares with every vector. */
const BITS_MAX = 8;
/** Bytes of X^T X kept at a time; the text is read again for the layers that do not fit. */
const HESSIAN_BYTES = 2 ** 29;

/** Replaces the linear layers of `model`, but for the head, by AQLM weights. */
export async function encodeAqlm(model: Model, options: EncodeOptions): Promise<void> {
  if (options.bits > BITS_MAX)
    throw new InvalidArgumentError(
      `aqlm-${options.codebooks}x${options.bits}: layers are encoded with at most ${BITS_MAX} bits a code`,
    );
  const slots = model.decoder.slots.filter(({ role }) => role === "linear").slice(0, -1);
  const total = slots.reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
  if (options.folder) await mkdir(options.folder, { recursive: true });
  let done = 0;
  for (const part of hessianParts(slots)) {
    const missing = [];
    for (const slot of part) if (!options.folder || !(await restored(model, slot, options))) missing.push(slot);
    const hessians = await hessiansOf(model, missing, options);
    for (const slot of part) {
      if (missing.includes(slot)) await encodeSlot(model, slot, hessians.get(slot.name) ?? null, options);
      done += slot.shape[0]! * slot.shape[1]!;
      options.onProgress?.(done, total);
    }
  }
}

/** Slots in parts whose X^T X fit the memory that is granted. */
function hessianParts(slots: readonly WeightSlot[]): WeightSlot[][] {
  const parts: WeightSlot[][] = [];
  let room = 0;
  for (const slot of slots) {
    const bytes = 4 * slot.shape[1]! ** 2;
    if (room < bytes || parts.length === 0) {
      parts.push([]);
      room = HESSIAN_BYTES;
    }
    parts.at(-1)!.push(slot);
    room -= bytes;
  }
  return parts;
}

function formOf(slot: WeightSlot, { codebooks, bits }: EncodeOptions): AqlmForm {
  const [n, k] = slot.shape as [number, number];
  const form = { n, k, codebooks, bits, inGroup: IN_GROUP, outGroup: 1 };
  checkForm(slot.name, form);
  return form;
}

/** Sums of X^T X by slot name; layers with the same input have the same matrix. Empty without a text. */
async function hessiansOf(
  model: Model,
  slots: readonly WeightSlot[],
  options: EncodeOptions,
): Promise<Map<string, Matrix>> {
  const { calibrationText, calibrationTokens = TOKENS_DEFAULT, signal } = options;
  const hessians = new Map<string, Matrix>();
  if (calibrationText === undefined || slots.length === 0) return hessians;
  const wanted = new Set(slots.map(({ name }) => name));
  let last: { x: Tensor; product: Matrix } | null = null;
  const observe: InputObserver = (name, x) => {
    if (!wanted.has(name)) return;
    const k = x.shape.at(-1)!;
    if (last?.x !== x) {
      const columns = transpose(matrix(x.data.length / k, k, x.data as Float32Array));
      last = { x, product: multiplyTransposed(columns, columns) };
    }
    const sum = hessians.get(name);
    const { product } = last;
    if (!sum) hessians.set(name, matrix(k, k, product.data.slice()));
    else for (let i = 0; i < sum.data.length; i++) sum.data[i]! += product.data[i]!;
  };
  await observeInputs(model, calibrationText, observe, { maxTokens: calibrationTokens, signal });
  return hessians;
}

async function encodeSlot(
  model: Model,
  slot: WeightSlot,
  hessian: Matrix | null,
  options: EncodeOptions,
): Promise<void> {
  const form = formOf(slot, options);
  const weights = (await model.weight(slot.name).load()) as Tensor;
  const values = matrix(form.n, form.k, toFloat32(weights));
  const encoded = await encodeLayer(form, values, hessian, options.signal);
  if (options.folder) {
    await save(pathOf(options.folder, slot), encoded, fingerprint(options, weights));
    model.replaceWeight(slot.name, loadedLater(slot, form, options.folder));
  } else
    model.replaceWeight(
      slot.name,
      aqlmWeight(slot.name, form, { vectors: "f16", scales: "f16" }, async () => encoded),
    );
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
  const entry = (name: string, dtype: "u8" | "f16", shape: number[], data: Uint8Array | Uint16Array) => ({
    ...{ name, dtype, shape, data: async () => data },
  });
  await writeSafetensors(
    path,
    [
      entry("codes", "u8", [outputs, inputs, weights.codebooks], weights.codes as Uint8Array),
      entry("codebooks", "f16", [weights.codebooks, entries, 1, weights.inGroup], weights.vectors as Uint16Array),
      entry("scales", "f16", [outputs, 1, 1, 1], weights.scales as Uint16Array),
    ],
    { made },
  );
}

/** Takes a layer of an earlier run; false when there is none, or one of other weights or options. */
async function restored(model: Model, slot: WeightSlot, options: EncodeOptions): Promise<boolean> {
  const folder = options.folder!;
  const path = pathOf(folder, slot);
  if (!existsSync(path)) return false;
  const file = await openTensorFile(path);
  const made = file.metadata.get("made");
  await file.close();
  const weights = (await model.weight(slot.name).load()) as Tensor;
  if (made !== fingerprint(options, weights)) return false;
  model.replaceWeight(slot.name, loadedLater(slot, formOf(slot, options), folder));
  return true;
}

function loadedLater(slot: WeightSlot, form: AqlmForm, folder: string) {
  return aqlmWeight(slot.name, form, { vectors: "f16", scales: "f16" }, async () => {
    const file = await openTensorFile(pathOf(folder, slot));
    try {
      const [codes, vectors, scales] = [
        await file.read("codes"),
        await file.read("codebooks"),
        await file.read("scales"),
      ];
      return {
        ...form,
        codes: codes.data as Uint8Array,
        vectors: vectors.data as Uint16Array,
        scales: scales.data as Uint16Array,
      };
    } finally {
      await file.close();
    }
  });
}
