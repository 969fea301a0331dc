/** Multi-token prediction layers of GGUF files: they come after the others and have `nextn.*` tensors beside a layer's own. */
import type { JsonObject } from "../json.ts";
import { renamedTensors } from "../renamed-tensors.ts";
import type { OpenTensors } from "../tensor-source.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const COUNT = "{arch}.nextn_predict_layers";
export const DRAFT_LAYERS_KEY = COUNT.replace("{arch}.", "");

/** Hugging Face's modules by GGUF's names, for the tensors that an ordinary layer does not have. */
const modules: Readonly<Record<string, string>> = {
  "nextn.eh_proj": "mtp.fc",
  "nextn.enorm": "mtp.pre_fc_norm_embedding",
  "nextn.hnorm": "mtp.pre_fc_norm_hidden",
  "nextn.shared_head_norm": "mtp.norm",
  "nextn.embed_tokens": "mtp.embed_tokens",
  "nextn.shared_head_head": "mtp.shared_head.head",
};

/** Number of a file's layers that are for multi-token prediction. */
export function draftLayers(metadata: GgufMetadata): number {
  return metadata.number(COUNT) ?? 0;
}

/** Config fields of the draft layers; `layers`: number of all layers of the file. */
export function draftConfig(metadata: GgufMetadata, tensors: GgufTensors, layers: number): JsonObject {
  const count = draftLayers(metadata);
  const isOwn = (part: string) => tensors.has(`blk.${layers - count}.nextn.${part}.weight`);
  return {
    mtp_num_hidden_layers: count,
    mtp_use_dedicated_embeddings: isOwn("embed_tokens"),
    mtp_use_dedicated_head: isOwn("shared_head_head"),
  };
}

/** Renames the tensors of draft layers as in Hugging Face's checkpoints, where these layers are counted from 0. */
export function withDraftLayer(tensors: OpenTensors, metadata: GgufMetadata): OpenTensors {
  const count = draftLayers(metadata);
  if (count === 0) return tensors;
  const first = (metadata.number("{arch}.block_count") ?? 0) - count;
  const shown = (name: string) => {
    const [, number, part = ""] = /^(?:blk|model\.layers)\.(\d+)\.(.+)$/.exec(name) ?? [];
    const index = Number(number) - first;
    if (!(index >= 0)) return name;
    const [, module = "", ending = ""] = /^(.+)\.(\w+)$/.exec(part) ?? [];
    if (index === 0 && Object.hasOwn(modules, module)) return `${modules[module]}.${ending}`;
    return `mtp.layers.${index}.${part}`;
  };
  return { ...renamedTensors(tensors, shown), close: () => tensors.close() };
}

/**
 * For a tensor of the draft layer, its name as that of layer number `layers` (`model`), or its own GGUF name (`file`); other
 * names are unchanged.
 */
export function draftTensorName(name: string, layers: number): { readonly model: string } | { readonly file: string } {
  const [, module = "", ending = ""] = /^(.+)\.(\w+)$/.exec(name) ?? [];
  const found = Object.entries(modules).find(([, own]) => own === module);
  if (found) return { file: `blk.${layers}.${found[0]}.${ending}` };
  return { model: name.replace(/^mtp\.layers\.0\./, `model.layers.${layers}.`) };
}
