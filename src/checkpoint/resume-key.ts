/**
 * The key of everything that a model's quantized weights depend on, by which an interrupted calibration or export is
 * resumed.
 */
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { version } from "../version.ts";
import type { Model } from "./model.ts";

/**
 * The key as JSON: the checkpoint's files with sizes and times, the configurations, this package's version and `more`; null
 * for a model with replaced or calibrated weights.
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
