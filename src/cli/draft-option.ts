/** The option `--draft`: where drafts (tokens that are computed before they are drawn) come from. */
import { existsSync } from "node:fs";
import type { Command } from "commander";
import { type Draft, drafts, isHubName } from "../tools/index.ts";
import { type ModelOptions, openModel } from "./model-source.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

export interface DraftOption {
  readonly draft?: string;
}

export function addDraftOption(command: Command): Command {
  return command.option(
    "--draft <source>",
    "where tokens come from that are computed before they are drawn: lookup (what followed the last ones before), mtp (also the model's own layer of multi-token prediction), off, or a smaller model with the same tokens; the text is the same (default: lookup)",
  );
}

/** Gives the drafts for all models of a command; a draft model is loaded once. UsageError for a value that is no draft. */
export function draftOf(
  { draft }: DraftOption,
  { context, threads }: ModelOptions,
  terminal: Terminal,
): () => Promise<Draft> {
  const named = drafts.find((name) => name === (draft ?? "lookup"));
  if (named) return async () => named;
  const path = draft!;
  if (!isHubName(path) && !existsSync(path))
    throw new UsageError(`--draft: expected ${drafts.join(", ")}, a file, a folder or hf:org/name but found ${path}`);
  const how = {
    quantizeHead: true,
    ...(context !== undefined && { context }),
    ...(threads !== undefined && { threads }),
  };
  let model: Promise<Draft> | null = null;
  return () => {
    // After a failure, the next model tries again.
    model ??= openModel(path, how, terminal, { isKept: true }).catch((error) => {
      model = null;
      throw error;
    });
    return model;
  };
}
