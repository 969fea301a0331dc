/** Small models of 2026 with what transformers computes of them: ../shared/golden/models-2026, whose README says how. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folder = join(import.meta.dirname, "../../../shared/golden/models-2026");
/** Whether the goldens are there: the project builds and passes without them. */
export const hasModels2026: boolean = existsSync(folder);

/** Folders whose architectures are here, and what those are called. */
export const models2026: Readonly<Record<string, string>> = {
  bitnet: "BitNetForCausalLM",
  ernie4_5: "Ernie4_5ForCausalLM",
  exaone4: "Exaone4ForCausalLM",
  "exaone4-no-window": "Exaone4ForCausalLM",
  "gemma3-conditional": "Gemma3ForCausalLM",
  "gemma4-conditional": "Gemma4ForCausalLM",
  gemma4_text: "Gemma4ForCausalLM",
  "gemma4_text-moe": "Gemma4ForCausalLM",
  "gemma4_text-k-eq-v": "Gemma4ForCausalLM",
  glm4: "Glm4ForCausalLM",
  gpt_oss: "GptOssForCausalLM",
  "gpt_oss-mxfp4": "GptOssForCausalLM",
  granitemoe: "GraniteMoeForCausalLM",
  "granitemoehybrid-dense": "GraniteMoeHybridForCausalLM",
  "granitemoehybrid-mamba2": "GraniteMoeHybridForCausalLM",
  hunyuan_v1_dense: "HunYuanDenseV1ForCausalLM",
  lfm2: "Lfm2ForCausalLM",
  lfm2_moe: "Lfm2MoeForCausalLM",
  lfm3: "Lfm3ForCausalLM",
  ministral3: "Ministral3ForCausalLM",
  mixtral: "MixtralForCausalLM",
  "mistral3-conditional": "Ministral3ForCausalLM",
  olmo3: "Olmo3ForCausalLM",
  olmoe: "OlmoeForCausalLM",
  qwen3_moe: "Qwen3MoeForCausalLM",
  "qwen3_5-conditional": "Qwen3_5ForCausalLM",
  qwen3_5_moe_text: "Qwen3_5MoeForCausalLM",
  qwen3_5_text: "Qwen3_5ForCausalLM",
};

export interface GoldenModel {
  readonly input_ids: readonly number[];
  readonly logits_rows: readonly number[];
  /** Logits of those rows of `input_ids`. */
  readonly logits: readonly (readonly number[])[];
  readonly long_input_ids: readonly number[];
  readonly long_last_logits: readonly number[];
  /** The 16 tokens after `input_ids`. */
  readonly greedy: readonly number[];
}

/** Folder of a golden model. */
export function modelFolder(name: string): string {
  return join(folder, name);
}

/** What transformers computes of a golden model. */
export function goldenOf(name: string): GoldenModel {
  return JSON.parse(readFileSync(join(folder, name, "golden.json"), "utf8"));
}
