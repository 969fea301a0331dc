/** Types only: what an opened checkpoint is, whatever files it was read from. */
import type { JsonFile, JsonObject } from "./json.ts";
import type { SentenceModules } from "./sentence-modules.ts";
import type { TensorSource } from "./tensor-source.ts";

/** An opened checkpoint: its configuration, its named tensors, and the files of its tokenizer and chat template. */
export interface Checkpoint {
  /** Path of the folder, or of the file where one holds it all. */
  readonly folder: string;
  /** Name of what holds the config, for messages. */
  readonly configFile: string;
  /** The contents of config.json, or what they would be for formats without it. */
  readonly config: JsonObject;
  /** The checkpoint's tensors by name. */
  readonly tensors: TensorSource;
  /** The tokenizer.json, null when absent. */
  readonly tokenizerJson: JsonFile | null;
  /**
   * The tokenizer_config.json with what added_tokens.json and special_tokens_map.json add; null without any of them.
   */
  readonly tokenizerConfig: JsonFile | null;
  /** The generation_config.json, null when absent. */
  readonly generationConfig: JsonFile | null;
  /** Jinja source from chat_template.jinja, else the (default) one of tokenizer_config.json; null when neither has one. */
  readonly chatTemplate: string | null;
  /** What sentence-transformers' files beside the checkpoint say; absent, or null, without them. */
  readonly modules?: SentenceModules | null;
  /** Other folders or files that some of its tensors are read from. Default: none. */
  readonly parts?: readonly string[];
  /** Sentences that say what was assumed because the files do not say it. */
  readonly notes: readonly string[];
  /** Closes the weight files. */
  close(): Promise<void>;
}
