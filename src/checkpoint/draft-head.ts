/** Whether a checkpoint has the layer of multi-token prediction that its config names: many that were saved anew have lost it. */
import type { Checkpoint } from "../formats/contract.ts";
import { moduleOf, type WeightSlot } from "../model/decoder.ts";
import { MULTI_TOKEN_LAYERS, MULTI_TOKEN_PREFIX } from "../model/multi-token.ts";

/** Says that the layer has an embedding and a head of its own. */
const OWN_EMBEDDING = "mtp_use_dedicated_embeddings";

/** The checkpoint without layers of multi-token prediction that are others than can be used, with a note. */
export function withDraftHead(checkpoint: Checkpoint): Checkpoint {
  const { config, configFile } = checkpoint;
  const count = config[MULTI_TOKEN_LAYERS] ?? 0;
  if (count === 0 || (count === 1 && config[OWN_EMBEDDING] !== true)) return checkpoint;
  const found = count === 1 ? `${OWN_EMBEDDING} true` : `${MULTI_TOKEN_LAYERS} ${JSON.stringify(count)}`;
  return withoutDraftHead(checkpoint, `${configFile}: ${found} is not supported; the model cannot draft for itself`);
}

/** The checkpoint as if its config had no such layers. */
function withoutDraftHead(checkpoint: Checkpoint, note: string | null): Checkpoint {
  const { config, notes } = checkpoint;
  const all = note === null ? notes : [...notes, note];
  return { ...checkpoint, config: { ...config, [MULTI_TOKEN_LAYERS]: 0 }, notes: all };
}

/**
 * The checkpoint without the layer where tensors of its slots are lacking, with a note unless all are; null where none is.
 * `named`: with tensors under the names of slots.
 */
export function withoutLackingHead(
  checkpoint: Checkpoint,
  named: Checkpoint,
  slots: readonly WeightSlot[],
): Checkpoint | null {
  const names = slots.map(({ name }) => name).filter((name) => name.startsWith(MULTI_TOKEN_PREFIX));
  const modules = new Set(named.tensors.names.map(moduleOf));
  const lacking = names.find((name) => !named.tensors.has(name) && !modules.has(moduleOf(name)));
  if (lacking === undefined) return null;
  const isThere = named.tensors.names.some((name) => name.startsWith(MULTI_TOKEN_PREFIX));
  const note = `${checkpoint.folder}: lacks tensor ${lacking} of multi-token prediction; the model cannot draft for itself`;
  return withoutDraftHead(checkpoint, isThere ? note : null);
}
