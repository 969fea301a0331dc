/**
 * Draft heads: the layer of multi-token prediction of a model's own checkpoint, which many checkpoints lack, or a separate
 * checkpoint.
 */
import { InvalidFileError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import type { TensorSource } from "../../formats/tensor-source.ts";
import { ASSISTANT_CONFIG, ASSISTANT_PREFIX } from "../../model/assistant.ts";
import { moduleOf, type WeightSlot } from "../../model/decoder.ts";
import { architectureName } from "../../model/encoders.ts";
import { MULTI_TOKEN_LAYERS, MULTI_TOKEN_PREFIX } from "../../model/multi-token.ts";

/** Whether a slot's weight is only used for drafts, so that predictions do not depend on it. */
export function isForDrafts(name: string): boolean {
  return [MULTI_TOKEN_PREFIX, ASSISTANT_PREFIX].some((prefix) => name.startsWith(prefix));
}

/** Config field of a layer with an embedding and a head of its own. */
const OWN_EMBEDDING = "mtp_use_dedicated_embeddings";

/** The checkpoint without layers of multi-token prediction that are not supported, with a note. */
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
 * The checkpoint, with tensors under the names of slots, without the layer where some of its tensors are missing, with a
 * note unless all are missing; null where none is.
 */
export function withoutLackingHead(checkpoint: Checkpoint, slots: readonly WeightSlot[]): Checkpoint | null {
  const names = slots.map(({ name }) => name).filter((name) => name.startsWith(MULTI_TOKEN_PREFIX));
  const modules = new Set(checkpoint.tensors.names.map(moduleOf));
  const lacking = names.find((name) => !checkpoint.tensors.has(name) && !modules.has(moduleOf(name)));
  if (lacking === undefined) return null;
  const isThere = checkpoint.tensors.names.some((name) => name.startsWith(MULTI_TOKEN_PREFIX));
  const note = `${checkpoint.folder}: lacks tensor ${lacking} of multi-token prediction; the model cannot draft for itself`;
  return withoutDraftHead(checkpoint, isThere ? note : null);
}

const ASSISTANT = /^Gemma4(Unified)?AssistantForCausalLM$/;
/** Tensors by which an assistant narrows its vocabulary down; here all its logits are computed. */
const CLUSTERS = "masked_embedding.";

/**
 * A checkpoint joined with a separate draft head: an assistant of Gemma 4, or the tensors `mtp.*` of Qwen3.5.
 * InvalidFileError, naming both, for a head that has neither.
 */
export function withHeadOf(checkpoint: Checkpoint, head: Checkpoint): Checkpoint {
  const isAssistant = ASSISTANT.test(architectureName(head.config));
  if (isAssistant && !/^Gemma4/.test(architectureName(checkpoint.config)))
    throw new InvalidFileError(
      head.configFile,
      `expected what drafts for ${architectureName(checkpoint.config)} of ${checkpoint.folder} but found ${architectureName(head.config)}`,
    );
  const shown = (name: string) => {
    if (isAssistant) return name.startsWith(CLUSTERS) ? null : `${ASSISTANT_PREFIX}${name}`;
    return name.startsWith(MULTI_TOKEN_PREFIX) ? name : null;
  };
  const own = renamedTensors(head.tensors, shown);
  if (own.names.length === 0)
    throw new InvalidFileError(
      head.folder,
      `expected tensors ${MULTI_TOKEN_PREFIX}* or an assistant of Gemma 4 to draft for ${checkpoint.folder} but found neither`,
    );
  return {
    ...checkpoint,
    config: {
      ...checkpoint.config,
      ...(isAssistant ? { [ASSISTANT_CONFIG]: head.config } : { [MULTI_TOKEN_LAYERS]: 1 }),
    },
    tensors: joined(checkpoint.tensors, own),
    parts: [...(checkpoint.parts ?? []), head.folder],
    async close() {
      await checkpoint.close();
      await head.close();
    },
  };
}

/** The tensors of both sources; the second's where both have a name. */
function joined(first: TensorSource, second: TensorSource): TensorSource {
  const of = (name: string) => (second.has(name) ? second : first);
  return {
    names: [...first.names.filter((name) => !second.has(name)), ...second.names],
    has: (name) => first.has(name) || second.has(name),
    info: (name) => of(name).info(name),
    read: (name) => of(name).read(name),
    readRows: (name, start, count) => of(name).readRows(name, start, count),
    lowBit: (name) => of(name).lowBit?.(name) ?? null,
    storedType: (name) => of(name).storedType?.(name) ?? of(name).info(name).dtype,
  };
}
