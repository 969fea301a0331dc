/** Whether a checkpoint has the layer of multi-token prediction that its config names: many that were saved anew have lost it. */
import type { Checkpoint } from "../formats/contract.ts";
import { MULTI_TOKEN_LAYERS, MULTI_TOKEN_PREFIX } from "../model/multi-token.ts";

/** Says that the layer has an embedding and a head of its own. */
const OWN_EMBEDDING = "mtp_use_dedicated_embeddings";

/**
 * The checkpoint as if its config had no layers of multi-token prediction where there are none of their tensors, or others than
 * can be used, which a note says. A head of which some tensors are there is left to be refused by what it lacks.
 */
export function withDraftHead(checkpoint: Checkpoint): Checkpoint {
  const { config, configFile, tensors, notes } = checkpoint;
  const count = config[MULTI_TOKEN_LAYERS] ?? 0;
  if (count === 0) return checkpoint;
  const isThere = tensors.names.some((name) => name.startsWith(MULTI_TOKEN_PREFIX));
  if (isThere && count === 1 && config[OWN_EMBEDDING] !== true) return checkpoint;
  const without = { ...checkpoint, config: { ...config, [MULTI_TOKEN_LAYERS]: 0 } };
  if (!isThere) return without;
  const found = count === 1 ? `${OWN_EMBEDDING} true` : `${MULTI_TOKEN_LAYERS} ${JSON.stringify(count)}`;
  return { ...without, notes: [...notes, `${configFile}: ${found} is not supported; it cannot draft for itself`] };
}
