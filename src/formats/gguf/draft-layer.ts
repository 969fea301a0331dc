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
    mtp_use_dedicated_embeddings: ["embed_tokens", "shared_head_head"].some(isOwn),
  };
}

/** Renames the tensors of the first draft layer as in Hugging Face's checkpoints. */
export function withDraftLayer(tensors: OpenTensors, metadata: GgufMetadata): OpenTensors {
  const count = draftLayers(metadata);
  if (count === 0) return tensors;
  const number = (metadata.number("{arch}.block_count") ?? 0) - count;
  const shown = (name: string) => {
    const [, part = "", ending = ""] = new RegExp(`^blk\\.${number}\\.(.+)\\.(\\w+)$`).exec(name) ?? [];
    if (Object.hasOwn(modules, part)) return `${modules[part]}.${ending}`;
    return name.replace(new RegExp(`^model\\.layers\\.${number}\\.`), "mtp.layers.0.");
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
