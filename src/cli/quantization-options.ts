/** The quantization options, declared once for every command that takes a checkpoint. */
import { createHash } from "node:crypto";
import { type Command, Option } from "commander";
import type { Model, QuantizationConfig } from "../index.ts";
import {
  algorithms,
  encodingOf,
  knownQmodes,
  layouts,
  mappingTypes,
  parseGroupSize,
  scaleDTypes,
} from "../tools/index.ts";
import { readTextFile } from "./text-file.ts";
import { UsageError } from "./usage-error.ts";
import { fileSize, fraction, number, wholeNumber } from "./values.ts";

export interface QuantizationOptions {
  readonly qmode?: string;
  readonly groupSize?: ReturnType<typeof parseGroupSize>;
  readonly mappingType?: QuantizationConfig["mappingType"];
  readonly algorithm?: QuantizationConfig["algorithm"];
  readonly scaleDtype?: QuantizationConfig["scaleDType"];
  readonly embedding?: string;
  /** True when given without a value. */
  readonly sharedEmbedding?: string | true;
  readonly quantizeHead: boolean;
  readonly head?: string;
  /** Bits of the first rows of table and head: "6:20%". */
  readonly rowBits?: string;
  readonly calibrate?: string;
  readonly calibrationTokens?: number;
  /** Seed of the calibration text that the model writes. */
  readonly calibrationSeed?: number;
  /** File to write that text to. */
  readonly saveCalibration?: string;
  /** SmoothQuant's strength alpha; true for the default. */
  readonly smoothquant?: number | true;
  /** Added to the mean squares of inputs, as a share of their mean. */
  readonly damping?: number;
  /** Size limit of the program's file: "180MB", "4.5bpw". */
  readonly size?: string;
  /** File to write the chosen configurations to. */
  readonly saveRecipe?: string;
  readonly recipe?: string;
  readonly layout?: string;
  readonly activations?: NonNullable<Model["activations"]>;
  /** Another runtime that must be able to read the weights, so that only its formats are used. */
  readonly reader?: "torchao" | "gguf";
}

/** The value of `--calibrate` for a text that the model writes itself. A file of this name is given as ./self. */
export const SELF = "self";

/** Options that a recipe replaces, as it does `--qmode` except for AQLM's modes. */
const inRecipe = [
  "groupSize",
  "mappingType",
  "algorithm",
  "scaleDtype",
  "embedding",
  "sharedEmbedding",
  "quantizeHead",
  "head",
  "rowBits",
];

export function addQuantizationOptions(command: Command): Command {
  return addTextOptions(addSchemeOptions(command)).hook("preAction", (_, action) => checkRecipe(action.opts()));
}

/** Adds options of calibration. */
function addTextOptions(command: Command): Command {
  return command
    .option(
      "--calibrate <text file|self>",
      "text, or self: the model writes one, whose activations --algorithm imatrix, gptq, awq, ..., --smoothquant, --size and --qmode aqlm-2x8 look at",
    )
    .option(
      "--calibration-tokens <n>",
      "tokens of it that are read, from its start (default: 4096; gptq: 16384)",
      wholeNumber,
    )
    .option("--calibration-seed <n>", "of --calibrate self: another seed, another text (default: 0)", wholeNumber)
    .option("--save-calibration <file>", "write the text of --calibrate self to a file, too")
    .option(
      "--damping <part>",
      "of gptq and imatrix: the part of the inputs' squares that is added to them; more trusts the text less (default: 0.2; imatrix: 0.01)",
      number,
    )
    .option(
      "--smoothquant [strength]",
      "SmoothQuant: scale activations to suit their 8 bits; 0 to 1 (default: 0.5)",
      fraction,
    )
    .option(
      "--size <bytes>",
      "most bytes of the program, such as 180MB or 4.5bpw: each matrix has the bits and groups that it needs, measured on the text",
      fileSize,
    )
    .option("--save-recipe <file.json>", "write what each matrix becomes, for --recipe");
}

/** Adds options of the format that weights get. */
function addSchemeOptions(command: Command): Command {
  return command
    .optionsGroup("Quantization of a checkpoint (float without these):")
    .option("--qmode <mode>", `mode of the linear layers: ${knownQmodes.join(", ")}, aqlm-2x8`)
    .addOption(
      new Option(
        "--group-size <n|axis>",
        "weights that share a scale; axis: one scale a row (default: 16 for 2 to 4 bits, else 32; wo8w, 8w and int8: axis)",
      ).argParser(parseGroupSize),
    )
    .addOption(
      new Option(
        "--mapping-type <type>",
        "weights of linear layers to integers; kmeans: to learned levels (default: codebook up to 4 bits, else symmetric)",
      ).choices(mappingTypes),
    )
    .addOption(
      new Option("--algorithm <name>", "choice of scales (default: mse; affine is min-max, as TorchAO)").choices(
        algorithms,
      ),
    )
    .addOption(
      new Option(
        "--scale-dtype <type>",
        "stored scales; i8: integers, with a factor for 256 weights (default: i8 for 2 to 4 bits without --group-size, else f16; beside affine and hqq_scale_only f32)",
      ).choices(scaleDTypes),
    )
    .option(
      "--embedding <bits,group[,mapping]>",
      "quantize the embedding table, for example 4,32 (default mapping: codebook up to 4 bits, else symmetric)",
    )
    .addOption(
      new Option(
        "--shared-embedding [bits,group[,mapping]]",
        "quantize a tied embedding and lm_head as one (default: bits and group of the qmode)",
      ).conflicts(["head", "quantizeHead"]),
    )
    .addOption(
      new Option(
        "--head <mode>",
        "mode of the lm_head, when it is not that of the other linear layers: 8da4w, ...",
      ).conflicts("quantizeHead"),
    )
    .addOption(
      new Option(
        "--row-bits <bits:rows,...>",
        "of table and head: bits of the first rows, those of the most frequent tokens, by number or share: 6:20%",
      ).conflicts("size"),
    )
    .option("--no-quantize-head", "leave the lm_head float")
    .addOption(
      new Option(
        "--recipe <file.json>",
        "configurations by module name, as docs/quantization.md shows; beside --qmode aqlm-2x8, those of the layers it names",
      ).conflicts(inRecipe),
    )
    .addOption(new Option("--layout <name>", "packed layout of the weights").choices(layouts.map(({ name }) => name)))
    .addOption(
      new Option(
        "--activations <type>",
        "for weights that the file has in few bits already, where nothing else says it: int8 is fast, float is exact (default: int8)",
      ).choices(["int8", "int8_per_token", "float"]),
    );
}

/**
 * UsageError for `--recipe` with `--qmode`, except for modes of encodings such as AQLM, which apply to layers outside the
 * recipe.
 */
function checkRecipe({ recipe, qmode }: QuantizationOptions): void {
  if (recipe !== undefined && qmode !== undefined && !encodingOf(qmode))
    throw new UsageError(
      `option '--recipe <file.json>' cannot be used with option '--qmode ${qmode}': a recipe says the modes itself, but for AQLM's`,
    );
}

/** All options of quantization. */
const names = [
  "qmode",
  ...inRecipe,
  "recipe",
  "layout",
  "activations",
  "calibrate",
  "calibrationTokens",
  "calibrationSeed",
  "damping",
  "smoothquant",
  "size",
] as const;

function givenOptions(options: QuantizationOptions): [name: string, value: unknown][] {
  const { quantizeHead, ...others } = options;
  const given = names
    .map((name): [string, unknown] => [name, others[name as keyof typeof others]])
    .filter(([, value]) => value !== undefined);
  return quantizeHead ? given : [...given, ["quantizeHead", false]];
}

/** Whether any of the options was given. */
export function wantsQuantization(options: QuantizationOptions): boolean {
  return givenOptions(options).length > 0;
}

/**
 * Describes the options for the cache's key: "qmode 8da4w, groupSize 64". Files are described by the SHA-256 of their
 * content.
 */
export async function describeQuantization(options: QuantizationOptions): Promise<string> {
  const parts = givenOptions(options).map(async ([name, value]) => {
    if ((name !== "recipe" && name !== "calibrate") || value === SELF) return `${name} ${value}`;
    return `${name} ${value} (${createHash("sha256")
      .update(await readTextFile(String(value)))
      .digest("hex")
      .slice(0, 10)})`;
  });
  return (await Promise.all(parts)).join(", ");
}
