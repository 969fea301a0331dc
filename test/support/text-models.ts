/** Small models that read whole texts: one of the project's own, and those of ../shared. */
import { cpSync, existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { openTensorFile } from "../../src/formats/shards.ts";
import { temporaryFolder } from "./folders.ts";
import { Random } from "./random.ts";

const goldensFolder = join(import.meta.dirname, "../../../shared/golden/models-2026");
export const hasGoldens: boolean = existsSync(goldensFolder);

/** Folder of a golden model: "bert-bge" is in the project, others are in ../shared. */
export function goldenFolder(family: string): string {
  if (family === "bert-bge") return join(import.meta.dirname, "../../models/tiny-bge");
  return join(goldensFolder, family);
}

export interface GoldenItem {
  readonly prompt_name: string | null;
  readonly text: string;
  readonly input_ids: readonly number[];
  readonly embedding: readonly number[];
  readonly last_hidden_state_first_and_last?: readonly (readonly number[])[];
}

/** Texts, their ids and their vectors, by transformers and sentence-transformers. */
export function goldenItems(family: string): readonly GoldenItem[] {
  return JSON.parse(readFileSync(join(goldenFolder(family), "golden.json"), "utf8")).items;
}

/** Weights of a head by their names. */
export type HeadWeights = Readonly<Record<string, { readonly shape: readonly number[]; readonly data: Float32Array }>>;

/** A classifier of one label over a golden encoder: its folder and the head's weights. */
export async function writeClassifier(
  family: string,
  given: {
    readonly architecture: string;
    readonly prefix: string;
    readonly head: Readonly<Record<string, readonly number[]>>;
    readonly config?: object;
  },
): Promise<{ readonly folder: string; readonly weights: HeadWeights }> {
  const source = goldenFolder(family);
  const folder = await temporaryFolder();
  cpSync(source, folder, { recursive: true, filter: (path) => !/modules\.json$|sentence|Pooling/.test(path) });
  const config = JSON.parse(readFileSync(join(source, "config.json"), "utf8"));
  const changed = { ...config, architectures: [given.architecture], id2label: { 0: "LABEL_0" }, ...given.config };
  await writeFile(join(folder, "config.json"), JSON.stringify(changed));
  const random = new Random(7);
  const weights: HeadWeights = Object.fromEntries(
    Object.entries(given.head).map(([name, shape]) => {
      const data = random.floats(shape.reduce((product, size) => product * size, 1));
      return [name, { shape, data }];
    }),
  );
  const tensors = await openTensorFile(join(source, "model.safetensors"));
  // Encoders have poolers of their own, which embeddings do not use.
  const kept = tensors.names.filter((name) => !Object.hasOwn(weights, `${given.prefix}${name}`));
  const entries = kept.map((name) => ({
    name: `${given.prefix}${name}`,
    ...tensors.info(name),
    data: async () => (await tensors.read(name)).data,
  }));
  const own = Object.entries(weights).map(([name, { shape, data }]) => ({
    ...{ name, shape, dtype: "f32" as const },
    data: async () => data,
  }));
  await writeSafetensors(join(folder, "model.safetensors"), [...entries, ...own]);
  await tensors.close();
  return { folder, weights };
}
