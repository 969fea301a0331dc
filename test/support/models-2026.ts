/** Small models of 2026 with what transformers computes of them: ../shared/golden/models-2026, whose README says how. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folder = join(import.meta.dirname, "../../../shared/golden/models-2026");
/** Whether the goldens are there: the project builds and passes without them. */
export const hasModels2026: boolean = existsSync(folder);

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
