/** Checks heads that a config ties to the embedding against the checkpoint's tensors, which decide in transformers, too. */
import type { Checkpoint } from "../../formats/contract.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import type { TensorSource } from "../../formats/tensor-source.ts";
import { logInfo } from "../../log.ts";
import { type Decoder, untied } from "../../model/decoder.ts";
import { bytesOf, isSameShape } from "../../tensor.ts";
import { inParts } from "../stored/quantize-rows.ts";

/**
 * The checkpoint and decoder as transformers 5 takes them: a tied head with values of its own becomes untied, and a head
 * that is stored in place of the embedding becomes the embedding. Where both are stored, they are read in parts and
 * compared.
 */
export async function withStoredHead(checkpoint: Checkpoint, decoder: Decoder): Promise<[Checkpoint, Decoder]> {
  const { configFile, config, tensors } = checkpoint;
  for (const { name, tiedTo } of decoder.slots) {
    if (tiedTo === null || !tensors.has(name)) continue;
    if (!tensors.has(tiedTo))
      return [
        { ...checkpoint, tensors: renamedTensors(tensors, (other) => (other === name ? tiedTo : other)) },
        decoder,
      ];
    if (await isSameMatrix(tensors, name, tiedTo)) continue;
    logInfo(() => `${configFile}: tie_word_embeddings is not so: ${name} and ${tiedTo} differ, and both are used`);
    return [{ ...checkpoint, config: { ...config, tie_word_embeddings: false } }, untied(decoder)];
  }
  return [checkpoint, decoder];
}

/** Whether two tensors are equal byte by byte. */
async function isSameMatrix(tensors: TensorSource, a: string, b: string): Promise<boolean> {
  const { dtype, shape } = tensors.info(a);
  const other = tensors.info(b);
  if (dtype !== other.dtype || !isSameShape(shape, other.shape) || shape.length !== 2) return false;
  const isSame = async (first: number, count: number) => {
    const [ours, others] = [await tensors.readRows(a, first, count), await tensors.readRows(b, first, count)];
    return Buffer.compare(bytesOf(ours.data), bytesOf(others.data)) === 0;
  };
  for await (const same of inParts(shape as [number, number], isSame)) if (!same) return false;
  return true;
}
