/** `--size` and `--save-recipe`: chooses bits for a size limit, and writes the choice. */
import type { Model, QuantizationConfig } from "../index.ts";
import { type FitSizeOptions, type FittedSize, fitSize, formatRecipe, writeFileWhole } from "../tools/index.ts";
import type { QuantizationOptions } from "./quantization-options.ts";
import { formatBytes, formatRanges } from "./table.ts";

const units = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 } as const;

/** Callbacks of choosing bits, and the folder that keeps the choice. */
export interface SizeHooks extends Pick<FitSizeOptions, "signal" | "folder" | "onProgress"> {
  /** How the model will be compiled, which decides the bytes of its program. */
  readonly compile?: Pick<FitSizeOptions, "target" | "cpu" | "maxSeqLen">;
  /** Called with the choice. */
  readonly onFitted?: (fitted: FittedSize) => void;
}

/** Bytes of a size: MB and GB are powers of 1000, MiB and GiB of 1024; bpw is bits a weight over all matrices. */
function bytesOf(size: string, { network }: Model): number {
  const [, number, unit] = /^([\d.]+)([a-z]*)$/i.exec(size) as unknown as [string, string, string];
  if (unit !== "bpw")
    return Math.floor(Number(number) * units[unit.toLowerCase().replace(/b$/, "") as keyof typeof units]);
  const weights = network.slots
    .filter(({ role, tiedTo }) => role !== "vector" && tiedTo === null)
    .reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
  return Math.floor((Number(number) * weights) / 8);
}

/** Chooses bits where `--size` is given, and writes the recipe where `--save-recipe` is. */
export async function applySize(
  model: Model,
  text: string | undefined,
  options: QuantizationOptions,
  { compile, signal, folder, onProgress, onFitted }: SizeHooks,
): Promise<void> {
  const { size, groupSize, calibrationTokens: maxTokens, saveRecipe } = options;
  if (size !== undefined)
    onFitted?.(
      await fitSize(model, text!, {
        ...compile,
        bytes: bytesOf(size, model),
        groupSizes: groupSize === undefined ? undefined : [groupSize],
        ...{ maxTokens, signal, folder },
        ...(onProgress && { onProgress }),
      }),
    );
  if (saveRecipe === undefined) return;
  const bytes = new TextEncoder().encode(formatRecipe(model));
  await writeFileWhole(saveRecipe, (sink) => sink.write(bytes));
}

/** Bits of a configuration: "4 bits", "6 bits in the first 9856 rows, then 4". */
function bitsOf({ bits, ranges = [] }: QuantizationConfig): string {
  const [first, ...rest] = ranges;
  if (!first) return `${bits} bits`;
  const others = rest.map((range) => `${range.bits} in ${range.rows}, `).join("");
  return `${first.bits} bits in the first ${first.rows} rows, then ${others}${bits}`;
}

/** The choice in a few lines. */
export function describeFitted({ bytes, divergence, uniform, configs }: FittedSize): string {
  const kinds = new Map<string, Map<string, number[]>>();
  for (const [name, config] of configs) {
    const bits = bitsOf(config);
    const kind = name.replace(/\.weight$/, "").replace(/^.*\.(\d+)\./, "");
    const layer = Number(/\.(\d+)\./.exec(name)?.[1] ?? 0);
    const byBits = kinds.get(kind) ?? new Map<string, number[]>();
    byBits.set(bits, [...(byBits.get(bits) ?? []), layer]);
    kinds.set(kind, byBits);
  }
  const lines = [...kinds].map(([kind, byBits]) => {
    const sorted = [...byBits].sort(([a], [b]) => (a < b ? -1 : 1));
    const [only] = sorted;
    if (sorted.length === 1) return `  ${kind}: ${only![0]}`;
    return `  ${kind}: ${sorted.map(([bits, layers]) => `${bits} in layers ${formatRanges([...new Set(layers)])}`).join("; ")}`;
  });
  const beside = uniform
    ? `; the same for all, ${uniform.bits} bits in groups of ${uniform.groupSize}, ${formatBytes(uniform.bytes)}: ${uniform.divergence.toPrecision(3)}`
    : "";
  return [
    `chose bits for ${formatBytes(bytes)}: KL divergence ${divergence.toPrecision(3)} before calibration${beside}`,
    ...lines,
  ].join("\n");
}
