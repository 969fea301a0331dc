/** Checks that a checkpoint stores a slot's weight as a plain tensor that can be read. */
import { InvalidFileError, LowbitError, ShapeError, UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { isQuantizedMethod, quantizedNames } from "../../formats/quantized/formats.ts";
import { moduleOf, type WeightSlot } from "../../model/decoder.ts";
import { isSameShape } from "../../tensor.ts";
import { isSameMethod, quantMethod, storageNames } from "./weight-storage.ts";

/** Quantization methods whose weights the readers in `formats` give as plain tensors, without a registered storage. */
const readMethods = ["TorchAO", ...quantizedNames];
const floatTypes = ["f32", "f16", "bf16"] as const;

/**
 * Checks that a slot's tensor has the slot's shape and a float dtype. InvalidFileError when it is missing, ShapeError for
 * another shape or dtype; UnsupportedError in place of both when config.json names an unsupported quantization method.
 */
export function checkSlot(checkpoint: Checkpoint, slot: WeightSlot): void {
  const method = quantMethod(checkpoint);
  try {
    checkTensor(checkpoint, slot);
  } catch (error) {
    if (!(error instanceof LowbitError) || method === null || isRead(method)) throw error;
    const known = [...storageNames(), ...readMethods, "weights as floats"].join(" or ");
    throw new UnsupportedError(
      `${checkpoint.configFile}: quantization_config.quant_method: expected ${known} but found "${method}" (${error.message})`,
      { cause: error },
    );
  }
}

/**
 * UnsupportedError when config.json names an unsupported quantization method, even where all weights are stored as floats.
 */
export function checkMethod(checkpoint: Checkpoint): void {
  const method = quantMethod(checkpoint);
  if (method === null || isRead(method)) return;
  throw new UnsupportedError(
    `${checkpoint.configFile}: quantization_config.quant_method "${method}" is not supported, only ${[...storageNames(), ...readMethods].join(", ")}; ` +
      "the weights are floats: without quantization_config they run as they are",
  );
}

const isRead = (method: string) =>
  isQuantizedMethod(method) || [...storageNames(), ...readMethods].some((name) => isSameMethod(name, method));

function checkTensor({ tensors, folder }: Checkpoint, { name, shape }: WeightSlot): void {
  if (!tensors.has(name)) {
    const module = moduleOf(name);
    const plain = ["weight", "bias"].map((part) => `${module}.${part}`);
    const others = tensors.names.filter((other) => other.startsWith(`${module}.`) && !plain.includes(other));
    const found = others.length === 0 ? "" : `; it has ${others.toSorted().join(", ")}`;
    throw new InvalidFileError(folder, `expected tensor ${name}, which the checkpoint lacks${found}`);
  }
  const info = tensors.info(name);
  if (!isSameShape(info.shape, shape))
    throw new ShapeError(
      `${folder}, tensor ${name}: expected shape [${shape}] by the config but found [${info.shape}]`,
    );
  if (!floatTypes.some((dtype) => dtype === info.dtype))
    throw new ShapeError(
      `${folder}, tensor ${name}: expected dtype ${floatTypes.join(", ")} but found ${tensors.storedType?.(name) ?? info.dtype}`,
    );
}
