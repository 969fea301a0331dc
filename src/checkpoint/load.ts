/** Checkpoints by path or name: files and folders, and models on the hub, which are downloaded. */
import { checkOptions, checkString } from "../arguments.ts";
import { isCheckpointPath, openCheckpoint } from "../formats/checkpoint.ts";
import { type PullOptions, pullModel } from "../hub/snapshot.ts";
import { checkPath } from "../node-file.ts";
import { type Model, modelOf } from "./model.ts";

/** Whether a path names a model on the hub: "hf:org/name". */
export function isHubName(path: string): boolean {
  checkString("path", path);
  return path.startsWith("hf:");
}

/**
 * Whether a path names a checkpoint, which `loadCheckpoint` opens, rather than a program, which `loadProgram` does: a folder,
 * a file of weights by its ending, or a model on the hub. InvalidFileError where nothing is.
 */
export async function isCheckpoint(path: string): Promise<boolean> {
  checkPath(path);
  return isHubName(path) || isCheckpointPath(path);
}

/** Opens a Hugging Face checkpoint folder, a .safetensors file in one, or a GGUF file, or downloads "hf:org/name[@revision]", and checks its tensors against its config. */
export async function loadCheckpoint(path: string, options: PullOptions = {}): Promise<Model> {
  checkPath(path);
  checkOptions(options);
  const checkpoint = await openCheckpoint(isHubName(path) ? await pullModel(path, options) : path);
  try {
    return await modelOf(checkpoint);
  } catch (error) {
    await checkpoint.close();
    throw error;
  }
}
