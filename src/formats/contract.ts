/** Types only: an opened checkpoint, independent of its file formats. */
import type { JsonFile, JsonObject } from "./json.ts";
import type { SentenceModules } from "./sentence-modules.ts";
import type { TensorSource } from "./tensor-source.ts";

/** An opened checkpoint: its configuration, its named tensors, and the files of its tokenizer and chat template. */
export interface Checkpoint {
  /** Path of the folder, or of the one file that holds everything. */
  readonly folder: string;
  /** Name of the file with the config, for messages. */
  readonly configFile: string;
  /** Contents of config.json, or the equivalent for formats without that file. */
  readonly config: JsonObject;
  /** The checkpoint's tensors by name. */
  readonly tensors: TensorSource;
  /** The tokenizer.json, null when absent. */
  readonly tokenizerJson: JsonFile | null;
  /** The tokenizer_config.json, merged with added_tokens.json and special_tokens_map.json; null without any of them. */
  readonly tokenizerConfig: JsonFile | null;
  /** The generation_config.json, null when absent. */
  readonly generationConfig: JsonFile | null;
  /** Jinja source of chat_template.jinja, or else the (default) template of tokenizer_config.json; null when neither exists. */
  readonly chatTemplate: string | null;
  /** Settings from sentence-transformers' files beside the checkpoint; absent or null without them. */
  readonly modules?: SentenceModules | null;
  /** Other folders or files that some tensors are read from. Default: none. */
  readonly parts?: readonly string[];
  /** Sentences about what was assumed because the files do not say it. */
  readonly notes: readonly string[];
  /** Closes the weight files. */
  close(): Promise<void>;
}
