/** Layers of multi-token prediction in GGUF files: behind the others, with tensors `nextn.*` beside those of a layer. */
import type { JsonObject } from "../json.ts";
import { renamedTensors } from "../renamed-tensors.ts";
import type { OpenTensors } from "../tensor-source.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const COUNT = "{arch}.nextn_predict_layers";
export const DRAFT_LAYERS_KEY = COUNT.replace("{arch}.", "");

/** Modules of Hugging Face's checkpoints, beside those of the layer, by the names that files have for them. */
const modules: Readonly<Record<string, string>> = {
  "nextn.eh_proj": "mtp.fc",
  "nextn.enorm": "mtp.pre_fc_norm_embedding",
  "nextn.hnorm": "mtp.pre_fc_norm_hidden",
  "nextn.shared_head_norm": "mtp.norm",
  "nextn.embed_tokens": "mtp.embed_tokens",
  "nextn.shared_head_head": "mtp.shared_head.head",
};

/** How many of a file's layers there are for it. */
export function draftLayers(metadata: GgufMetadata): number {
  return metadata.number(COUNT) ?? 0;
}

/** What a config says of them. `layers`: all of the file. */
export function draftConfig(metadata: GgufMetadata, tensors: GgufTensors, layers: number): JsonObject {
  const count = draftLayers(metadata);
  const isOwn = (part: string) => tensors.has(`blk.${layers - count}.nextn.${part}.weight`);
  return {
    mtp_num_hidden_layers: count,
    mtp_use_dedicated_embeddings: isOwn("embed_tokens"),
    mtp_use_dedicated_head: isOwn("shared_head_head"),
  };
}

/** The tensors under the names of Hugging Face's checkpoints, where the layers count among those for drafts from 0. */
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

/** The name of a tensor of the layer as that of one behind `layers` others, or as a file has it; other names as they are. */
export function draftTensorName(name: string, layers: number): { readonly model: string } | { readonly file: string } {
  const [, module = "", ending = ""] = /^(.+)\.(\w+)$/.exec(name) ?? [];
  const found = Object.entries(modules).find(([, own]) => own === module);
  if (found) return { file: `blk.${layers}.${found[0]}.${ending}` };
  return { model: name.replace(/^mtp\.layers\.0\./, `model.layers.${layers}.`) };
}
