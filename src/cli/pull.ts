/** `lowbit pull`: downloads a model from the hub into the cache. */
import type { Command } from "commander";
import { pullModel } from "../index.ts";
import type { Terminal } from "./terminal.ts";

export function addPull(program: Command, terminal: Terminal): void {
  program
    .command("pull")
    .summary("download a model from the Hugging Face hub")
    .description(
      "Downloads config, tokenizer and weights of a model into the cache that Python's huggingface_hub uses too, and\n" +
        "prints the folder. An interrupted download goes on where it ended. Obeys HF_TOKEN, HF_ENDPOINT, HF_HOME,\n" +
        "HF_HUB_CACHE and HF_HUB_OFFLINE.",
    )
    .argument("<model>", "org/name, or org/name@revision")
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit pull HuggingFaceTB/SmolLM2-135M-Instruct
  $ lowbit quantize hf:HuggingFaceTB/SmolLM2-135M-Instruct --qmode 8da4w -o smollm2.pte`,
    )
    .action((model: string) => pull(model, terminal));
}

async function pull(model: string, terminal: Terminal): Promise<void> {
  const progress = terminal.progress("downloading");
  try {
    const { signal, onWait } = terminal;
    const folder = await pullModel(model, { signal, onWait, onProgress: progress.update });
    progress.stop();
    await terminal.writeLine(folder);
  } finally {
    progress.stop();
  }
}
