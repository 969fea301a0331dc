/** Prefixes as files: the KV cache of a prompt, for another process to go on from. */
import { checkIds, checkInstance, checkString } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { LanguageModel } from "../language/language-model.ts";
import { methodFor } from "../language/program-decoder.ts";
import { openFile, writeFileWhole } from "../node-file.ts";
import { storeOf } from "../runtime/program.ts";
import { programIdentity } from "../runtime/program-identity.ts";

function storeOfModel(model: LanguageModel) {
  checkInstance("model", model, LanguageModel, "one of loadProgram()");
  const store = storeOf(model.program);
  if (!store)
    throw new UnsupportedError(`${model.name}: keeps one sequence in states of its own, which cannot be saved`);
  return store;
}

/**
 * Writes the keys and values that the model holds of the longest prefix of a prompt (a text, or ids) to a file, which
 * appears complete or not at all. Gives the number of its tokens. InvalidArgumentError when the model holds none of the
 * prompt: generate from it first.
 */
export async function savePrefix(
  model: LanguageModel,
  prompt: string | readonly number[],
  path: string,
): Promise<number> {
  const store = storeOfModel(model);
  checkString("path", path);
  if (typeof prompt !== "string") checkIds("prompt", prompt, "a text or token ids");
  const ids = typeof prompt === "string" ? model.tokenizer.encode(prompt) : prompt;
  const sequence = store.open(ids, { branch: methodFor(model.program, ids.length) });
  try {
    const { position } = sequence;
    if (position === 0)
      throw new InvalidArgumentError(
        `prompt: expected one of which the model holds at least ${store.layout.pagePositions} tokens but it holds none`,
      );
    await writeFileWhole(path, async (sink) => {
      for (const part of store.save(sequence, programIdentity(model.program))) await sink.write(part);
    });
    return position;
  } finally {
    sequence.dispose();
  }
}

/**
 * Reads a file of `savePrefix`, in this or another process: prompts that begin with it are computed from its end on. Gives
 * the number of its tokens. InvalidFileError for a file that is damaged, or of another program, KV cache type or version.
 */
export async function restorePrefix(model: LanguageModel, path: string): Promise<number> {
  const store = storeOfModel(model);
  const file = await openFile(path);
  try {
    const sequence = await store.restore(file, programIdentity(model.program));
    const { position } = sequence;
    sequence.dispose();
    return position;
  } finally {
    await file.close();
  }
}
