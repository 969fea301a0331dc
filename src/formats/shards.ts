/** Weights sharded over several files by an index such as `model.safetensors.index.json`, read as one source. */
import { join } from "node:path";
import { InvalidFileError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import { describe, duplicateKey, isObject, type JsonFile, quote } from "./json.ts";
import { openSafetensors, type TensorFile } from "./safetensors.ts";
import type { OpenTensors } from "./tensor-source.ts";

/** Opens one safetensors file by path. */
export async function openTensorFile(path: string): Promise<TensorFile> {
  const source = await openFile(path);
  try {
    return await openSafetensors(source);
  } catch (error) {
    await source.close();
    throw error;
  }
}

/**
 * Opens every shard named by `index`, the file at `indexPath`. InvalidFileError when the index is malformed, names a file
 * outside its folder, or lists a tensor that its shard does not have.
 */
export async function openShards(
  indexPath: string,
  folder: string,
  index: JsonFile,
  open: (path: string) => Promise<OpenTensors> = openTensorFile,
): Promise<OpenTensors> {
  const shardOf = parseWeightMap(indexPath, index);
  const files = new Map<string, OpenTensors>();
  const close = async () => {
    for (const file of files.values()) await file.close();
  };
  try {
    for (const shard of new Set(shardOf.values())) files.set(shard, await open(join(folder, shard)));
    for (const [name, shard] of shardOf)
      if (!files.get(shard)!.has(name))
        throw new InvalidFileError(
          indexPath,
          `places tensor ${quote(name)} in ${quote(shard)}, which does not hold it`,
        );
  } catch (error) {
    await close();
    throw error;
  }
  const fileOf = (name: string): OpenTensors => {
    const shard = shardOf.get(name);
    if (shard === undefined)
      throw new InvalidFileError(indexPath, `has no tensor ${quote(name)} among its ${shardOf.size}`);
    return files.get(shard)!;
  };
  return {
    names: [...shardOf.keys()],
    metadata: new Map([...files.values()].flatMap((file) => [...(file.metadata ?? [])])),
    has: (name) => shardOf.has(name),
    info: (name) => fileOf(name).info(name),
    read: async (name) => fileOf(name).read(name),
    readRows: async (name, firstRow, rowCount) => fileOf(name).readRows(name, firstRow, rowCount),
    storedType: (name) => fileOf(name).storedType?.(name) ?? fileOf(name).info(name).dtype,
    close,
  };
}

/** Maps tensor names to shard file names. */
function parseWeightMap(indexPath: string, { text, value }: JsonFile): Map<string, string> {
  const { weight_map: weightMap } = value;
  if (!isObject(weightMap))
    throw new InvalidFileError(indexPath, `weight_map should be an object but is ${describe(weightMap)}`);
  const duplicate = duplicateKey(text, 2);
  if (duplicate !== null) throw new InvalidFileError(indexPath, `has ${quote(duplicate)} twice`);
  const shardOf = new Map<string, string>();
  for (const [name, shard] of Object.entries(weightMap)) {
    if (typeof shard !== "string" || !isFileName(shard))
      throw new InvalidFileError(
        indexPath,
        `weight_map: ${quote(name)} should name a file in the same folder but is ${describe(shard)}`,
      );
    shardOf.set(name, shard);
  }
  if (shardOf.size === 0) throw new InvalidFileError(indexPath, "weight_map names no tensors");
  return shardOf;
}

/** Whether a name is a plain file name: no path, no Windows drive or stream, no way out of the folder. */
function isFileName(name: string): boolean {
  return name !== "" && !/[/\\:\0]/.test(name) && !name.includes("..");
}
