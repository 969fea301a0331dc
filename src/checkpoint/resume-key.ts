/** What a model's quantized weights follow from: by this an interrupted calibration or export is continued. */
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { version } from "../version.ts";
import type { Model } from "./model.ts";

/**
 * The checkpoint's files with their sizes and times, the configurations, this package's version and what else is given, as
 * JSON; null for a model whose weights were replaced or calibrated.
 */
export async function resumeKey(model: Model, more: readonly unknown[] = []): Promise<string | null> {
  if (model.hasForeignWeights) return null;
  const { folder, parts = [] } = model.checkpoint;
  const filesOf = async (path: string) =>
    (await stat(path)).isDirectory() ? (await readdir(path)).sort().map((name) => join(path, name)) : [path];
  const files = (await Promise.all([folder, ...parts].map(filesOf))).flat();
  const facts = await Promise.all(
    files.map(async (file) => {
      const { size, mtimeMs } = await stat(file);
      return [basename(file), size, mtimeMs];
    }),
  );
  const content = JSON.stringify([version, facts, [...model.configs], model.layout, ...more]);
  return createHash("sha256").update(content).digest("hex");
}
