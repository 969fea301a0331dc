/** How long the context of a model is, without loading the model. */
import { isCheckpoint, loadCheckpoint } from "../checkpoint/load.ts";
import { longestText } from "../checkpoint/texts.ts";
import { isTextNetwork } from "../model/encoder.ts";
import { readMetadata } from "../runtime/program.ts";
import { type ProgramFileOptions, withProgramFile } from "./program-file.ts";

/**
 * Tokens that a text of a model may have, of a program or of a checkpoint on this machine, as its file says it. Loading may
 * cut that for memory. Throws as `loadProgram` and `loadCheckpoint` do; null for a program that does not say it.
 */
export async function contextLengthOf(
  path: string,
  options: Pick<ProgramFileOptions, "data" | "contextLength"> = {},
): Promise<number | null> {
  const own = (await isCheckpoint(path)) ? await ofCheckpoint(path) : await ofProgram(path, options);
  return own === null ? null : Math.min(own, options.contextLength ?? own);
}

async function ofCheckpoint(path: string): Promise<number> {
  const model = await loadCheckpoint(path);
  try {
    const { network, checkpoint } = model;
    return isTextNetwork(network) ? longestText(checkpoint, network) : network.contextLength;
  } finally {
    await model.close();
  }
}

async function ofProgram(path: string, options: Pick<ProgramFileOptions, "data">): Promise<number | null> {
  return withProgramFile(path, options, async (program) => {
    const metadata = readMetadata(program);
    const found = metadata.get("get_max_context_len") ?? metadata.get("get_max_seq_len");
    return typeof found === "number" ? found : null;
  });
}
