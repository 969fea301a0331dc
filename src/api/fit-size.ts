/** Chooses bits and group size of every matrix of a model so that its program takes at most a number of bytes. */
import { join } from "node:path";
import { checkOptions, checkString, checkWhole, unexpected } from "../arguments.ts";
import { type Choosable, Sensitivity } from "../checkpoint/calibrate/sensitivity.ts";
import type { WalkOptions } from "../checkpoint/calibrate/walk.ts";
import { checkModel, type Model } from "../checkpoint/model.ts";
import { resumeKey } from "../checkpoint/resume-key.ts";
import type { SlotWeight } from "../checkpoint/stored/slot-weight.ts";
import { isForDrafts } from "../checkpoint/wrappers/draft-head.ts";
import { capture } from "../compile/capture.ts";
import { argumentValues, type Graph, type GraphValue } from "../compile/graph.ts";
import { byteSize } from "../dtype.ts";
import { InvalidArgumentError } from "../errors.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { checksum } from "../kernels/layout/header.ts";
import { logInfo } from "../log.ts";
import { makeFolder, readTextIfAny, writeFileWhole } from "../node-file.ts";
import { weightName } from "../ops/packed-constant.ts";
import { spendBytes } from "../quantize/budget.ts";
import { atBits } from "../quantize/codebooks.ts";
import { makeConfig, type QuantizationConfig } from "../quantize/config.ts";
import { type RowSpan, usedSpans } from "../quantize/row-spans.ts";
import { type GroupSize, hasIntegerScales, RANGE_STEP, RANGES_MAX, type RowRange } from "../quantize/scheme.ts";
import { operators } from "../registry/operators.ts";
import { elementCount } from "../tensor.ts";
import { checkCompiles, methodSources } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { programBytes } from "./export-program.ts";

/** Options of `fitSize`: how large the program may be, how it is compiled, and how much of the text is read. */
export interface FitSizeOptions extends WalkOptions, Omit<CompileModelOptions, "signal"> {
  /** Most bytes of the program's file: weights, tokenizer and all else. */
  readonly bytes: number;
  /**
   * Group sizes to choose from. Sizes that do not divide a matrix's columns, or that its type of scales does not allow, are
   * left out. Default: 16 and 32 with 8-bit scales, else 32, 64 and 128.
   */
  readonly groupSizes?: readonly GroupSize[] | undefined;
  /** Whether rows of large tables and heads may differ in bits, which only programs of this package hold. Default: true. */
  readonly ranges?: boolean | undefined;
  /**
   * Folder in which size.json keeps the choice, so that the same call after an interruption does not measure again. The
   * caller removes the file.
   */
  readonly folder?: string | undefined;
  /** Called as matrices are measured, with weights done and weights in all. */
  onProgress?(doneWeights: number, totalWeights: number): void;
}

/** A choice with the same bits and group size for all matrices, and what it measured. */
export interface UniformChoice {
  /** Bits of a weight. */
  readonly bits: number;
  /** Weights that share a scale. */
  readonly groupSize: GroupSize;
  /** Bytes of the program's file. */
  readonly bytes: number;
  /** Mean Kullback-Leibler divergence of its predictions from those of the float weights, in nats a token. */
  readonly divergence: number;
}

/** What `fitSize` chose, and what it measured on the text. */
export interface FittedSize {
  /** Bytes of the program's file. */
  readonly bytes: number;
  /** Mean Kullback-Leibler divergence of the predictions from those of the float weights, in nats a token. */
  readonly divergence: number;
  /** The best choice with the same bits and group size for all matrices that fits; null when none does. */
  readonly uniform: UniformChoice | null;
  /** The chosen configurations by slot name, which the model now has. */
  readonly configs: ReadonlyMap<string, QuantizationConfig>;
}

const BITS = [2, 3, 4, 5, 6, 7, 8];
const GROUP_SIZES: readonly GroupSize[] = [16, 32, 64, 128];
/** Rounds of choosing: each spends the bytes that the round before left over. */
const ROUNDS = 6;

/**
 * Gives each matrix of a model that has a configuration the bits and the group size that suit it, so that the program takes
 * at most `bytes` and its predictions for the text are as near as possible to those of the float weights. Kind, algorithm
 * and type of scales stay those of the configuration. The divergence is measured for each matrix alone, then for the whole
 * choice and for the best choice with the same bits for all; the better one is taken. `calibrate` may follow.
 * InvalidArgumentError for a model without configurations, or for fewer bytes than the least that are possible, which it
 * names.
 */
export async function fitSize(model: Model, text: string, options: FitSizeOptions): Promise<FittedSize> {
  checkModel(model);
  checkString("text", text);
  checkOptions(options);
  const { bytes, groupSizes, maxTokens } = options;
  checkWhole("bytes", bytes, 1);
  if (maxTokens !== undefined) checkWhole("tokens of the text", maxTokens, 1);
  if (groupSizes !== undefined) checkGroupSizes(groupSizes);
  checkCompiles(model, compileOptions(options));
  return model.atomically(async () => {
    const { bytes, groupSizes = null, ranges = true, folder } = options;
    const { cpu, ...compile } = compileOptions(options);
    const key = folder && (await resumeKey(model, [text, bytes, groupSizes, ranges, maxTokens, compile, cpu?.name]));
    const known = folder && key ? await keptFit(folder, key) : null;
    if (known) model.configure(known.configs);
    const fitted = known ?? (await new SizeFit(model, options).run(text));
    if (folder && key && !known) await keepFit(folder, key, fitted);
    return fitted;
  });
}

const KEPT = "size.json";

/** The first line of size.json: the key of the call and the checksum of the rest. */
const keptHead = (key: string, bytes: Uint8Array) => `${key} ${checksum(bytes)}\n`;

async function keepFit(folder: string, key: string, { configs, ...fitted }: FittedSize): Promise<void> {
  await makeFolder(folder);
  const encoder = new TextEncoder();
  const content = encoder.encode(JSON.stringify({ ...fitted, configs: [...configs] }));
  await writeFileWhole(join(folder, KEPT), async (sink) => {
    await sink.write(encoder.encode(keptHead(key, content)));
    await sink.write(content);
  });
}

/** The choice that an earlier call kept; null where there is none, or where it is damaged or has another key. */
async function keptFit(folder: string, key: string): Promise<FittedSize | null> {
  const text = await readTextIfAny(join(folder, KEPT));
  if (text === null) return null;
  const content = text.slice(text.indexOf("\n") + 1);
  if (text !== keptHead(key, new TextEncoder().encode(content)) + content) {
    logInfo(() => `${join(folder, KEPT)}: of another call, or damaged; bits are chosen again`);
    return null;
  }
  const { configs, ...fitted } = JSON.parse(content);
  return { ...fitted, configs: new Map(configs) };
}

function checkGroupSizes(sizes: readonly GroupSize[]): void {
  const isSize = (size: GroupSize) => size === "axis" || (Number.isSafeInteger(size) && size >= 1);
  if (!Array.isArray(sizes) || sizes.length === 0 || !sizes.every(isSize))
    throw unexpected("groupSizes", 'a list of whole numbers from 1, or "axis"', sizes);
}

function compileOptions({ target, cpu, maxSeqLen }: FitSizeOptions): CompileModelOptions {
  return { target, maxSeqLen, ...(cpu && { cpu }) };
}

type Configs = ReadonlyMap<string, QuantizationConfig>;

/** Configurations and the bytes of the program that has them. */
type Found = Pick<FittedSize, "bytes" | "configs">;

/** Bytes of the whole file, and of each item's matrices. */
interface Uniform {
  readonly total: number;
  readonly sizes: readonly number[];
}

/** A weight, or a span of its rows, to choose for. */
interface Part extends Choosable {
  /** The rows of each of its weights; null for all. */
  readonly rows: RowSpan | null;
  /** Bytes with each choice. */
  readonly bytes: readonly number[];
  /** Divergence with each choice, in nats a token. */
  readonly costs: readonly number[];
}

interface Candidates {
  readonly mixed: Found | null;
  /** With the index of its bits and group size among the choices. */
  readonly same: (Found & { readonly choice: number }) | null;
  /** Measures what is chosen. */
  readonly together: Sensitivity;
}

class SizeFit {
  readonly #model: Model;
  readonly #options: FitSizeOptions;
  readonly #items: readonly Choosable[];
  /** Number of pairs of bits and group size to choose from. */
  readonly #choices: number;

  constructor(model: Model, options: FitSizeOptions) {
    this.#model = model;
    this.#options = options;
    const groups = groupsOf(model);
    if (groups.length === 0)
      throw new InvalidArgumentError(
        `${model.name}: expected configurations of matrices to choose bits for; quantize first`,
      );
    const schemes = schemesFor(model, groups.flat(), options.groupSizes ?? GROUP_SIZES);
    this.#choices = schemes.length;
    this.#items = groups.map((names) => {
      const configs = schemes.map(([bits, groupSize]) => changed(model.configOf(names[0]!)!, bits, groupSize));
      return { names, configs };
    });
  }

  async run(text: string): Promise<FittedSize> {
    const { mixed, same, together } = await this.#model.usual.held(() => this.#search(text));
    // With the factors of channels that these configurations get.
    const measured = async (found: Found | null) => {
      if (!found) return null;
      this.#model.configure(found.configs);
      return { ...found, divergence: await together.divergence(found.configs) };
    };
    const [own, alike] = [await measured(mixed), await measured(same)];
    const chosen = own && (!alike || own.divergence <= alike.divergence) ? own : alike;
    if (!chosen)
      throw new InvalidArgumentError(`bytes: found no choice of bits that takes at most ${this.#options.bytes}`);
    this.#model.configure(chosen.configs);
    const { bits, groupSize } = this.#items[0]!.configs[same?.choice ?? 0]!;
    const uniform = alike && { bits, groupSize, bytes: alike.bytes, divergence: alike.divergence };
    const { bytes, configs, divergence } = chosen;
    return { bytes, configs, divergence, uniform };
  }

  /** The best choice by estimated costs, and the best that is the same for all matrices. */
  async #search(text: string): Promise<Candidates> {
    const { bytes } = this.#options;
    const uniforms = Array.from({ length: this.#choices }, (_, choice) => this.#sizesOf(choice));
    const fitting = uniforms.flatMap(({ total }, choice) => (total <= bytes ? [choice] : []));
    const fixed = uniforms[0]!.total - sum(uniforms[0]!.sizes);
    const least = fixed + sum(this.#items.map((_, i) => Math.min(...uniforms.map(({ sizes }) => sizes[i]!))));
    if (bytes < least)
      throw new InvalidArgumentError(
        `bytes: expected at least ${Math.ceil(least)} for ${this.#model.name}, ${Math.ceil(fixed)} of them for what is not quantized, but found ${bytes}`,
      );
    const probe = fitting.reduce((best, c) => (uniforms[c]!.total > uniforms[best]!.total ? c : best), fitting[0] ?? 0);
    const alone = await Sensitivity.of(this.#model, text, "one by one", this.#options);
    const costs = await alone.costs(this.#items, probe, this.#options.onProgress);
    const together = await Sensitivity.of(this.#model, text, "together", this.#options);
    const mixed = this.#spend(this.#parts(uniforms, costs, together), fixed);
    const costOf = (choice: number) => sum(costs.map((item) => item[choice]!));
    const best = fitting.reduce((best, c) => (costOf(c) < costOf(best) ? c : best), fitting[0] ?? -1);
    const same = best < 0 ? null : { bytes: uniforms[best]!.total, configs: this.#sameConfigs(best), choice: best };
    return { mixed, same, together };
  }

  /** The choice of least cost whose program fits, with left-over bytes spent; null where none fits. */
  #spend(parts: readonly Part[], fixed: number): Found | null {
    const { bytes } = this.#options;
    let room = bytes - fixed;
    let best: { bytes: number; configs: Configs } | null = null;
    for (let round = 0; round < ROUNDS; round++) {
      const chosen = spendBytes(parts, room);
      if (!chosen) break;
      const configs = configsOf(parts, chosen);
      const total = this.#bytesOf(configs);
      if (total <= bytes && total > (best?.bytes ?? 0)) best = { bytes: total, configs };
      room += bytes - total;
    }
    return best;
  }

  #sameConfigs(choice: number): Configs {
    return new Map(this.#items.flatMap(({ names, configs }) => names.map((name) => [name, configs[choice]!] as const)));
  }

  #bytesOf(configs: Configs): number {
    this.#model.configure(configs);
    return programBytes(this.#model, compileOptions(this.#options));
  }

  /**
   * The items with their sizes and costs. Large tables and heads are divided into spans of rows: bytes by rows, costs by how
   * much their tokens are used. Measured for each span, on few tokens, they would be mostly noise.
   */
  #parts(uniforms: readonly Uniform[], costs: readonly number[][], together: Sensitivity): readonly Part[] {
    const { target, ranges = true } = this.#options;
    const mayDivide = ranges && target !== "executorch";
    const isTable = ({ names }: Choosable) => isDivided(this.#model, this.#model.slotWeight(names[0]!));
    const tables = new Set(mayDivide ? this.#items.filter(isTable) : []);
    const spans = tables.size > 0 ? usedSpans(together.tokenShares(), SPANS, RANGE_STEP) : [];
    return this.#items.flatMap((item, i) => {
      const whole: Part = { ...item, rows: null, bytes: uniforms.map(({ sizes }) => sizes[i]!), costs: costs[i]! };
      if (!tables.has(item)) return [whole];
      return spans.map((rows): Part => {
        const part = (rows.end - rows.first) / spans.at(-1)!.end;
        const bytes = whole.bytes.map((size) => size * part);
        return { ...item, rows, bytes, costs: whole.costs.map((cost) => cost * rows.part) };
      });
    });
  }

  /** The sizes when all items take choice number `choice`. */
  #sizesOf(choice: number): Uniform {
    const total = this.#bytesOf(this.#sameConfigs(choice));
    const { sources } = methodSources(this.#model, compileOptions(this.#options), true);
    const graph = capture(sources[0]!, operators, this.#options.cpu ?? hostCpu());
    const bytes = constantBytes(graph);
    const sizes = this.#items.map(({ names }) =>
      sum([...new Set(names.map(constantKey))].map((name) => bytes.get(name) ?? 0)),
    );
    return { total, sizes };
  }
}

/** The key of a weight's constant. Experts of a layer share one, as they are stored in one stack. */
const constantKey = (name: string) => name.replace(/\.experts\..*/, ".experts");

/** Bytes of a graph's constants before load-time fusion joins any, by the keys of their weights. */
function constantBytes({ nodes }: Graph): ReadonlyMap<string, number> {
  const constants = new Set<GraphValue>(nodes.flatMap((node) => [...argumentValues(node)]));
  const bytes = new Map<string, number>();
  for (const { constant, spec } of constants) {
    if (!constant) continue;
    const key = constantKey(weightName(constant.key));
    bytes.set(key, (bytes.get(key) ?? 0) + elementCount(spec.shape) * byteSize(spec.dtype));
  }
  return bytes;
}

/**
 * Slots with configurations, grouped where they share a constant. Slots that only draft are left out: predictions do not
 * depend on them.
 */
function groupsOf(model: Model): readonly (readonly string[])[] {
  const groups = new Map<string, string[]>();
  for (const { name, role, tiedTo } of model.network.slots) {
    const config = model.configOf(name);
    if (!config || role === "vector" || model.storedFormat(name) !== null || isForDrafts(name)) continue;
    const source = config.kind === "sharedEmbedding" ? (tiedTo ?? name) : name;
    const key = constantKey(source);
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups.values()];
}

/** Rows of a table are divided where there are at least so many; each part is a call of its own. */
const ROWS_LEAST = 4096;
/** Most parts. */
const SPANS = RANGES_MAX + 1;

/** Whether a weight has a row for each token, and so many that spans of them get bits of their own. */
function isDivided(model: Model, { slot: { name, role, shape } }: SlotWeight): boolean {
  const head = model.network.slots.findLast(({ role }) => role === "linear")?.name;
  if ((role !== "embedding" && name !== head) || model.isEncoder) return false;
  return shape[0] === model.decoder.vocabularySize && shape[0] >= ROWS_LEAST;
}

/** The configuration of some rows of a matrix; null for all. */
interface PartConfig {
  readonly rows: RowSpan | null;
  readonly config: QuantizationConfig;
}

/** The configurations of weights whose parts have these choices. */
function configsOf(parts: readonly Part[], chosen: readonly number[]): Configs {
  const found = new Map<readonly string[], PartConfig[]>();
  for (const [i, { names, configs, rows }] of parts.entries())
    found.set(names, [...(found.get(names) ?? []), { rows, config: configs[chosen[i]!]! }]);
  return new Map(
    [...found].flatMap(([names, of]) => {
      const config = joined(of);
      return names.map((name) => [name, config] as const);
    }),
  );
}

/** One configuration for a matrix whose rows have several: spans with the same are one range. */
function joined(parts: readonly PartConfig[]): QuantizationConfig {
  const last = parts.at(-1)!.config;
  const ranges: RowRange[] = [];
  const isSame = (a: QuantizationConfig, b: QuantizationConfig) => JSON.stringify(a) === JSON.stringify(b);
  const others = parts.slice(0, parts.findLastIndex(({ config }) => !isSame(config, last)) + 1);
  for (const [i, { rows, config }] of others.entries()) {
    const before = i > 0 && isSame(others[i - 1]!.config, config) ? ranges.pop()!.rows : 0;
    const { bits, groupSize, mappingType } = config;
    ranges.push({ rows: before + rows!.end - rows!.first, bits, groupSize, mappingType });
  }
  if (ranges.length === 0) return last;
  const { kind, ...scheme } = last;
  return makeConfig(kind, { ...scheme, ranges });
}

/**
 * Pairs of bits and group size that all these matrices can have; their own group size with all bits where there is none.
 */
function schemesFor(model: Model, names: readonly string[], groupSizes: readonly GroupSize[]) {
  const chosen = new Set(names);
  const columns = model.network.slots.flatMap(({ name, shape }) => (chosen.has(name) ? [shape[1]!] : []));
  const configs = names.map((name) => model.configOf(name)!);
  const isWhole = (size: GroupSize) => size === "axis" || columns.every((k) => k % size === 0);
  const isStored = (bits: number, size: GroupSize) =>
    configs.every((config) => (config.scaleDType === "i8" ? hasIntegerScales(bits, size) : size !== 16));
  const schemes = BITS.flatMap((bits) => groupSizes.map((size) => [bits, size] as const));
  const known = schemes.filter(([bits, size]) => isWhole(size) && isStored(bits, size));
  return known.length > 0 ? known : BITS.map((bits) => [bits, configs[0]!.groupSize] as const);
}

function changed(
  { kind, ranges: _, ...scheme }: QuantizationConfig,
  bits: number,
  groupSize: GroupSize,
): QuantizationConfig {
  return makeConfig(kind, atBits({ ...scheme, groupSize }, bits));
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
