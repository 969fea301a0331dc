/**
 * Draft heads: the layer of multi-token prediction of a model's own checkpoint, which many checkpoints lack, or a separate
 * checkpoint.
 */
import { InvalidFileError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import type { JsonObject } from "../../formats/json.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import type { TensorSource } from "../../formats/tensor-source.ts";
import { ASSISTANT_CONFIG, ASSISTANT_PREFIX } from "../../model/assistant.ts";
import { moduleOf, type WeightSlot } from "../../model/decoder.ts";
import { architectureName } from "../../model/encoders.ts";
import { MIMO, MULTI_TOKEN_LAYERS, MULTI_TOKEN_PREFIX, ofMimo } from "../../model/multi-token.ts";
import { clusteredTensors } from "./clustered-head.ts";

/** Whether a slot's weight is only used for drafts, so that predictions do not depend on it. */
export function isForDrafts(name: string): boolean {
  return [MULTI_TOKEN_PREFIX, ASSISTANT_PREFIX].some((prefix) => name.startsWith(prefix));
}

/** Layers behind the first, each of which would draft one token further. */
const LATER_LAYER = /^mtp\.layers\.[1-9]/;
/** How GLM, DeepSeek and those after them call the number of such layers. */
const NEXT_LAYERS = "num_nextn_predict_layers";

/**
 * The checkpoint with one layer of multi-token prediction at most, with a note where it has more: the first of several drafts all
 * tokens, as each sees its own tokens as well. Layers of models that have no place for them are named.
 */
export function withDraftHead(given: Checkpoint): Checkpoint {
  const checkpoint = architectureName(given.config) === MIMO ? fromMimo(given) : given;
  const { config, configFile, notes, tensors } = checkpoint;
  const count = Number(config[MULTI_TOKEN_LAYERS] ?? 0);
  if (count === 0 && Number(config[NEXT_LAYERS] ?? 0) > 0)
    return withoutDraftHead(
      checkpoint,
      `${configFile}: ${NEXT_LAYERS} ${JSON.stringify(config[NEXT_LAYERS])} of ${architectureName(config)} is not supported; the model cannot draft for itself`,
    );
  if (!(count > 1)) return checkpoint;
  const note = `${configFile}: of ${count} layers of multi-token prediction, the first drafts`;
  return {
    ...checkpoint,
    config: { ...config, [MULTI_TOKEN_LAYERS]: 1 },
    tensors: renamedTensors(tensors, (name) => (LATER_LAYER.test(name) ? null : name)),
    notes: [...notes, note],
  };
}

/** MiMo's checkpoint under Qwen3.5's names. */
function fromMimo({ config, tensors, ...rest }: Checkpoint): Checkpoint {
  const fields = { ...config, [MULTI_TOKEN_LAYERS]: config[NEXT_LAYERS] ?? 0 };
  return { ...rest, config: fields, tensors: renamedTensors(tensors, ofMimo) };
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

/**
 * A checkpoint joined with a separate draft head: an assistant of Gemma 4, or the tensors `mtp.*` of Qwen3.5.
 * InvalidFileError, naming both, for a head that has neither.
 */
export async function withHeadOf(checkpoint: Checkpoint, head: Checkpoint): Promise<Checkpoint> {
  const isAssistant = ASSISTANT.test(architectureName(head.config));
  if (isAssistant && !/^Gemma4/.test(architectureName(checkpoint.config)))
    throw new InvalidFileError(
      head.configFile,
      `expected what drafts for ${architectureName(checkpoint.config)} of ${checkpoint.folder} but found ${architectureName(head.config)}`,
    );
  const own = isAssistant
    ? renamedTensors(await clusteredTensors(head, checkpoint.folder), (name) => `${ASSISTANT_PREFIX}${name}`)
    : renamedTensors(head.tensors, (name) => (name.startsWith(MULTI_TOKEN_PREFIX) ? name : null));
  if (own.names.length === 0)
    throw new InvalidFileError(
      head.folder,
      `expected tensors ${MULTI_TOKEN_PREFIX}* or an assistant of Gemma 4 to draft for ${checkpoint.folder} but found neither`,
    );
  return {
    ...checkpoint,
    config: {
      ...checkpoint.config,
      ...(isAssistant ? { [ASSISTANT_CONFIG]: head.config } : multiTokenConfig(head.config)),
    },
    tensors: joined(isAssistant ? checkpoint.tensors : withoutOwn(checkpoint.tensors), own),
    parts: [...(checkpoint.parts ?? []), head.folder],
    async close() {
      await checkpoint.close();
      await head.close();
    },
  };
}

/** Without the tensors of the model's own layer, so that no layer is made of two. */
function withoutOwn(tensors: TensorSource): TensorSource {
  return renamedTensors(tensors, (name) => (/(?:^|\.)mtp\./.test(name) ? null : name));
}

/** What a config says of layers of multi-token prediction; one where it says nothing. */
function multiTokenConfig(config: JsonObject): JsonObject {
  const said = Object.entries(config).filter(([field]) => field.startsWith("mtp_"));
  return { [MULTI_TOKEN_LAYERS]: 1, ...Object.fromEntries(said) };
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
