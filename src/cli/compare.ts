/** `lowbit compare`: divergence of several models from a reference, and the bytes of their files. */
import { extname } from "node:path";
import type { Command } from "commander";
import type { LanguageModel } from "../index.ts";
import { type Comparison, compareEach, isCheckpoint, writeFileWhole } from "../tools/index.ts";
import { type Curve, divergenceChart } from "./divergence-chart.ts";
import {
  addScoringOptions,
  bytesOf,
  openForScoring,
  openReference,
  readTexts,
  type ScoringOptions,
  withProgress,
} from "./eval.ts";
import { addModelOptions, MODEL_HELP } from "./model-source.ts";
import { formatBytes, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

interface CompareOptions extends ScoringOptions {
  readonly against: string;
  readonly svg?: string;
}

/** Measurements of one model. */
interface Compared {
  readonly model: string;
  readonly bytes: number;
  readonly texts: readonly ({ readonly text: string } & Comparison)[];
}

export function addCompare(program: Command, terminal: Terminal): void {
  const command = program
    .command("compare")
    .summary("how far several models are from a reference, by the bytes of their files")
    .description(
      "Compares the probabilities of several models with those of a reference, as lowbit eval --against does of one, and\n" +
        "draws the divergence of each against its bytes. All are loaded at once; the reference runs once for each text.",
    )
    .argument("<models...>", MODEL_HELP)
    .requiredOption("--against <reference>", "the reference, such as the checkpoint that they were quantized from")
    .option("--svg <file.svg>", "draw divergence against bytes, a curve for each text");
  addModelOptions(addScoringOptions(command))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit compare model-2bit.pte model-3bit.pte model-4bit.pte --against ./checkpoint --text heldout.txt
  $ lowbit compare *.gguf --activations float --against ./checkpoint --text prose.txt --text code.txt --svg chart.svg`,
    )
    .action((models: string[], options: CompareOptions) => compare(models, options, terminal));
}

async function compare(models: readonly string[], options: CompareOptions, terminal: Terminal): Promise<void> {
  const { against, svg } = options;
  if (svg !== undefined && extname(svg).toLowerCase() !== ".svg")
    throw new UsageError(`--svg: expected the name of an .svg file but found "${svg}"`);
  const texts = await readTexts(options);
  const reference = await openReference(against, options, terminal);
  const referenceBytes = bytesOf(against, reference, {});
  const opened: LanguageModel[] = [];
  const isProgram = await Promise.all(models.map(async (path) => !(await isCheckpoint(path))));
  for (const [i, path] of models.entries()) {
    // Programs keep the activations that they were exported with; `--activations` applies to checkpoints only.
    const { activations: _, ...others } = options;
    opened.push(await openForScoring(path, isProgram[i] && isProgram.includes(false) ? others : options, terminal));
  }
  const found: Comparison[][] = [];
  for (const [, content] of texts)
    found.push(await withProgress(options, terminal, (settings) => compareEach(opened, reference, content, settings)));
  const results = models.map((path, i) => ({
    model: path,
    bytes: bytesOf(path, opened[i]!, options),
    texts: texts.map(([text], t) => ({ text, ...found[t]![i]! })),
  }));
  if (svg !== undefined) {
    const chart = divergenceChart(
      curvesOf(
        texts.map(([file]) => file),
        results,
      ),
    );
    await writeFileWhole(svg, (sink) => sink.write(new TextEncoder().encode(chart)));
  }
  if (options.json) await terminal.writeJson({ against, againstBytes: referenceBytes, models: results });
  else await terminal.writeLine(`${tableOf(results)}\nreference ${against}: ${formatBytes(referenceBytes)}`);
}

function tableOf(results: readonly Compared[]): string {
  const heading = ["model", "bytes", "text", "tokens", "KL, nats", "±", "99 %", "same top, %", "±", "PPL ratio", "±"];
  const rows = results.flatMap(({ model, bytes, texts }) =>
    texts.map(({ text, tokens, divergence, ...of }) => [
      ...[model, bytes, text, tokens, divergence.mean.toFixed(5), divergence.standardError.toFixed(5)],
      ...[
        divergence.percentile99.toFixed(3),
        (100 * of.topAgreement).toFixed(2),
        (100 * of.topAgreementError).toFixed(2),
      ],
      ...[of.perplexityRatio.toFixed(4), of.perplexityRatioError.toFixed(4)],
    ]),
  );
  return formatTable([heading, ...rows]);
}

function curvesOf(texts: readonly string[], results: readonly Compared[]): Curve[] {
  return texts.map((name, i) => ({
    name,
    points: results.map(({ model, bytes, texts: found }) => {
      const { mean, standardError } = found[i]!.divergence;
      return { name: model, bytes, divergence: mean, error: standardError };
    }),
  }));
}
