/** Encodes all linear layers of a float model but the head, layer by layer, so that it can stop and go on later. */
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import {
  checksum,
  InvalidArgumentError,
  type LinearVisitor,
  type Matrix,
  type Model,
  matrix,
  openTensorFile,
  type Tensor,
  toFloat32,
  visitLinearLayers,
  type WeightSlot,
  writeSafetensors,
} from "../../extension/index.ts";
import { type AqlmForm, type AqlmWeights, checkForm, formCounts } from "../form.ts";
import type { AqlmMode } from "../mode.ts";
import { aqlmWeight } from "../weight.ts";
import { encodeLayer } from "./layer.ts";

export interface EncodeOptions extends AqlmMode {
  /** Text whose activations weigh the errors; without one, errors of weights count alike. */
  readonly calibrationText?: string | undefined;
  /** Tokens of it that are read. Default 4096. */
  readonly calibrationTokens?: number | undefined;
  /** Layers to leave as they are, by the name of their weights. */
  skip?(name: string): boolean;
  /** Folder for finished layers. What it has from before, made with the same options, is not computed again. */
  readonly folder?: string | undefined;
  onProgress?(doneWeights: number, totalWeights: number): void;
  readonly signal?: AbortSignal | undefined;
}

const IN_GROUP = 8;
const TOKENS_DEFAULT = 4096;
/** Codebooks of 8 bits or fewer: the search compares with every vector. */
const BITS_MAX = 8;
/** Replaces the linear layers of `model`, but for the head, by AQLM weights. */
export async function encodeAqlm(model: Model, options: EncodeOptions): Promise<void> {
  if (options.bits > BITS_MAX)
    throw new InvalidArgumentError(
      `aqlm-${options.codebooks}x${options.bits}: layers are encoded with at most ${BITS_MAX} bits a code`,
    );
  const layers = model.decoder.slots.filter(({ role }) => role === "linear").slice(0, -1);
  const slots = layers.filter(({ name }) => !options.skip?.(name));
  const total = slots.reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
  if (options.folder) await mkdir(options.folder, { recursive: true });
  const missing = new Set<string>();
  let done = 0;
  const finished = ({ shape }: WeightSlot) => {
    done += shape[0]! * shape[1]!;
    options.onProgress?.(done, total);
  };
  for (const slot of slots)
    if (options.folder && (await restored(model, slot, options))) finished(slot);
    else missing.add(slot.name);
  const encode = async (name: string, hessian: Matrix | null) => {
    const slot = slots.find((candidate) => candidate.name === name)!;
    await encodeSlot(model, slot, hessian, options);
    finished(slot);
  };
  const { calibrationText: text, calibrationTokens: maxTokens = TOKENS_DEFAULT, signal } = options;
  if (text === undefined) for (const name of missing) await encode(name, null);
  else if (missing.size > 0) {
    // Later layers see what they would in the float model.
    const visit: LinearVisitor = async ({ name, hessian }) => {
      if (missing.has(name)) await encode(name, hessian());
      return null;
    };
    await visitLinearLayers(model, text, visit, { maxTokens, signal });
  }
}

function formOf(slot: WeightSlot, { codebooks, bits }: EncodeOptions): AqlmForm {
  const [n, k] = slot.shape as [number, number];
  const form = { n, k, codebooks, bits, inGroup: IN_GROUP, outGroup: 1 };
  checkForm(slot.name, form);
  return form;
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
