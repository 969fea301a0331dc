/** What the bytes of an exported model follow from, beside its program: by this an interrupted export is continued. */
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Model } from "../checkpoint/model.ts";
import { version } from "../version.ts";

/**
 * The checkpoint's files with their sizes and times, the configurations and this package's version; null for a model
 * whose weights were replaced or calibrated.
 */
export async function resumeKey(model: Model): Promise<string | null> {
  if (model.hasForeignWeights) return null;
  const { folder } = model.checkpoint;
  const files = (await stat(folder)).isDirectory()
    ? (await readdir(folder)).sort().map((name) => join(folder, name))
    : [folder];
  const facts = await Promise.all(
    files.map(async (file) => {
      const { size, mtimeMs } = await stat(file);
      return [basename(file), size, mtimeMs];
    }),
  );
  const content = JSON.stringify([version, facts, [...model.configs], model.layout]);
  return createHash("sha256").update(content).digest("hex");
}
