/**
 * Gated short convolution of LFM2 (Liquid AI 2025): C * convolution(B * x), where B, C and x are projections of the input.
 */
import { UnsupportedError } from "../errors.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { LayerPass, Mixer, PartActivations, Place } from "./layer.ts";
import { madeByLinear } from "./scalable.ts";
import { linearSlots, tapsSlot, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** Most taps, far beyond any model's. */
const TAPS_MAX = 1 << 8;

export interface ShortConvolutionConfig {
  /** Elements of a token's hidden state, each a channel of the convolution. */
  readonly hidden: number;
  /** Inputs of the convolution for each result: the token's own and those before it. */
  readonly taps: number;
  /** Whether both linear layers and the convolution have a bias. */
  readonly bias: boolean;
}

/** Number of taps of a convolution, at least 2: its state is the inputs before the token's own. */
export function tapsOf(config: ConfigReader, field: string, fallback: number): number {
  const taps = config.size(field, fallback, TAPS_MAX);
  if (taps < 2) throw new UnsupportedError(`${config.file}: ${field} ${taps} is not supported, only 2 or more`);
  return taps;
}

/** A layer's gated short convolution. Its state is the convolution's last inputs. */
export class ShortConvolution implements Mixer {
  readonly module = "conv";
  readonly cache = null;
  readonly states = 1;
  readonly readsPackedSequences = false;
  readonly config: ShortConvolutionConfig;

  constructor(config: ShortConvolutionConfig) {
    this.config = config;
  }

  slots(module: string): WeightSlot[] {
    const { hidden, taps, bias } = this.config;
    return [
      ...linearSlots(`${module}.in_proj`, 3 * hidden, hidden, bias),
      tapsSlot(`${module}.conv.weight`, hidden, taps),
      ...(bias ? [vectorSlot(`${module}.conv.bias`, hidden)] : []),
      ...linearSlots(`${module}.out_proj`, hidden, hidden, bias),
    ];
  }

  scalable(module: string): PartActivations {
    const { hidden, bias } = this.config;
    const factors = { size: hidden, rowOf: (c: number) => hidden + c };
    return {
      readers: [`${module}.in_proj.weight`],
      inner: [madeByLinear(`${module}.in_proj`, bias, factors, `${module}.out_proj`)],
    };
  }

  forward<T>(pass: LayerPass<T>, x: T, { module, firstState }: Place): T {
    const { ops } = pass;
    const { hidden, bias } = this.config;
    const all = pass.linear(x, `${module}.in_proj`, bias);
    const third = (i: number) => ops.columns(all, i * hidden, (i + 1) * hidden);
    const [taps, added] = [pass.weight(`${module}.conv.weight`), bias ? pass.weight(`${module}.conv.bias`) : null];
    const mixed = ops.shortConvolution(ops.multiply(third(0), third(2)), taps, added, { state: firstState });
    return pass.linear(ops.multiply(third(1), mixed), `${module}.out_proj`, bias);
  }
}
