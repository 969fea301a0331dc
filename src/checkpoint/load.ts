/** Opens checkpoints by path or name: files, folders, and hub models, which are downloaded. */
import { checkOptions, checkString } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import { isCheckpointPath, openCheckpoint } from "../formats/checkpoint.ts";
import type { Checkpoint } from "../formats/contract.ts";
import { type PullOptions, pullModel } from "../hub/snapshot.ts";
import { checkPath } from "../node-file.ts";
import { type Model, modelOf } from "./model.ts";
import { withHeadOf } from "./wrappers/draft-head.ts";

/** Whether a path names a hub model: "hf:org/name". */
export function isHubName(path: string): boolean {
  checkString("path", path);
  return path.startsWith("hf:");
}

/**
 * Whether a path names a checkpoint (for `loadCheckpoint`) rather than a program (for `loadProgram`): a folder, a file of
 * weights by its extension, or a hub model. InvalidFileError where nothing exists.
 */
export async function isCheckpoint(path: string): Promise<boolean> {
  checkPath(path);
  return isHubName(path) || isCheckpointPath(path);
}

/** How a checkpoint is downloaded and opened. */
export interface LoadCheckpointOptions extends PullOptions {
  /**
   * Path of a separate checkpoint or GGUF file that drafts for the model: an assistant of Gemma 4, or Qwen3.5's tensors `mtp.*`.
   * Default: the checkpoint's own layer of multi-token prediction, if any.
   */
  readonly draftHead?: string | undefined;
}

/**
 * Opens a Hugging Face checkpoint folder, a .safetensors file in one, or a GGUF file, or downloads "hf:org/name[@revision]", and
 * checks its tensors against its config.
 */
export async function loadCheckpoint(path: string, options: LoadCheckpointOptions = {}): Promise<Model> {
  checkPath(path);
  checkOptions(options);
  const { draftHead, ...pull } = options;
  const opened = await opening(path, pull);
  let checkpoint = opened;
  try {
    if (draftHead === undefined) return await modelOf(checkpoint);
    checkpoint = await withHead(opened, draftHead, pull);
    return await modelWithHead(checkpoint, opened, draftHead);
  } catch (error) {
    await checkpoint.close();
    throw error;
  }
}

/** InvalidFileError that names both where the model is sound without what was given to draft for it. */
async function modelWithHead(joined: Checkpoint, alone: Checkpoint, head: string): Promise<Model> {
  const refuse = (why: string, cause?: unknown): never => {
    throw new InvalidFileError(head, `does not draft for ${alone.folder}: ${why}`, { cause });
  };
  const model = await modelOf(joined).catch(async (error: unknown) => {
    // What is wrong with the model itself is told as it is without.
    await modelOf(alone);
    return refuse((error as Error).message, error);
  });
  const { notes } = model.checkpoint;
  return model.decoder.draftHead ? model : refuse(notes.at(-1) ?? "it lacks tensors");
}

async function opening(path: string, pull: PullOptions): Promise<Checkpoint> {
  return openCheckpoint(isHubName(path) ? await pullModel(path, pull) : path);
}

async function withHead(checkpoint: Checkpoint, path: string, pull: PullOptions): Promise<Checkpoint> {
  checkPath(path);
  const head = await opening(path, pull);
  try {
    return await withHeadOf(checkpoint, head);
  } catch (error) {
    await head.close();
    throw error;
  }
}
