/** What a program must know of a checkpoint to generate: its begin and end tokens. */
import type { Checkpoint } from "../formats/contract.ts";
import { samplingDefaults, tokenIds } from "../language/generation-settings.ts";

export interface GenerationFacts {
  readonly bosId: number | null;
  readonly eosIds: readonly number[];
}

/**
 * Ids from generation_config.json, else from config.json; negative and immense ones stand for none. InvalidFileError for
 * ids that are no whole numbers, and for sampling settings out of range.
 */
export function generationFacts({ folder, configFile, config, generationConfig }: Checkpoint): GenerationFacts {
  const settings = generationConfig?.value ?? {};
  const settingsFile = `${folder}/generation_config.json`;
  samplingDefaults(settings, settingsFile);
  const ids = (name: string) => {
    const own = settings[name] ?? null;
    const [value, file] = own === null ? [config[name] ?? [], configFile] : [own, settingsFile];
    return tokenIds(value, name, file);
  };
  return { bosId: ids("bos_token_id")[0] ?? null, eosIds: ids("eos_token_id") };
}
