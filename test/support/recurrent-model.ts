/** A small language model with recurrent layers: gated convolution, gated delta rule, linear recurrence, and attention. */
import type { MethodSource } from "../../src/compile/capture.ts";
import { compile } from "../../src/compile/compile.ts";
import type { Cpu } from "../../src/kernels/contract.ts";
import { Ops } from "../../src/ops/ops.ts";
import type { FloatWeight } from "../../src/ops/weight.ts";
import type { Program } from "../../src/program/program.ts";
import { operators } from "../../src/registry/operators.ts";
import { Random } from "./random.ts";

export const VOCABULARY = 40;
const DIM = 16;
const TAPS = 3;
const KEY_HEADS = 2;
const HEADS = 4;
const KEY_DIM = 6;
const VALUE_DIM = 5;
const KEYS = KEY_HEADS * KEY_DIM;
const VALUES = HEADS * VALUE_DIM;

const random = new Random(38);

/** Weights that are the same in every program of this process. */
function weight(name: string, shape: readonly number[], size: number): FloatWeight {
  const data = random.floats(
    shape.reduce((product, n) => product * n, 1),
    size,
  );
  return {
    name,
    shape,
    format: { kind: "float", dtype: "f32" },
    load: async () => ({ dtype: "f32", shape, data }),
  };
}

const matrix = (name: string, n: number, k: number) => weight(name, [n, k], 2 / Math.sqrt(k));
const norm = (name: string): FloatWeight => weight(name, [DIM], 1.5);

const weights = {
  embedding: weight("embedding", [VOCABULARY, DIM], 1),
  norms: [0, 1, 2, 3, 4].map((i) => norm(`norm ${i}`)),
  convolution: {
    input: matrix("convolution.input", 3 * DIM, DIM),
    taps: weight("convolution.taps", [DIM, 1, TAPS], 1),
    bias: weight("convolution.bias", [DIM], 0.5),
    output: matrix("convolution.output", DIM, DIM),
  },
  delta: {
    input: matrix("delta.input", 2 * KEYS + VALUES, DIM),
    taps: weight("delta.taps", [2 * KEYS + VALUES, 1, 4], 1),
    gates: matrix("delta.gates", 2 * HEADS, DIM),
    output: matrix("delta.output", DIM, VALUES),
  },
  linear: {
    input: matrix("linear.input", 2 * KEYS + VALUES + HEADS, DIM),
    output: matrix("linear.output", DIM, VALUES),
  },
  attention: {
    input: matrix("attention.input", 3 * DIM, DIM),
    output: matrix("attention.output", DIM, DIM),
  },
  head: matrix("head", VOCABULARY, DIM),
};

/** Columns of a matrix, one part of each width after the other. */
function split<T>(ops: Ops<T>, x: T, ...widths: number[]): T[] {
  let start = 0;
  return widths.map((width) => {
    start += width;
    return ops.columns(x, start - width, start);
  });
}

/** y = C * convolution(B * x), as LFM2's short convolutions. */
function gatedConvolution<T>(ops: Ops<T>, x: T): T {
  const { input, taps, bias, output } = weights.convolution;
  const [b, c, inner] = split(ops, ops.linear(x, input), DIM, DIM, DIM) as [T, T, T];
  const mixed = ops.shortConvolution(ops.call("aten::mul.out", b, inner), taps, bias, { state: 0 });
  return ops.linear(ops.call("aten::mul.out", c, mixed), output);
}

function deltaRule<T>(ops: Ops<T>, x: T): T {
  const { input, taps, gates, output } = weights.delta;
  const mixed = ops.shortConvolution(ops.linear(x, input), taps, null, { state: 1, silu: true });
  const [q, k, v] = split(ops, mixed, KEYS, KEYS, VALUES) as [T, T, T];
  const [decay, beta] = split(ops, ops.call("aten::sigmoid.out", ops.linear(x, gates)), HEADS, HEADS) as [T, T];
  const options = { state: 2, keyHeads: KEY_HEADS, logDecay: ops.scale(decay, -1), beta, scale: KEY_DIM ** -0.5 };
  return ops.linear(ops.linearRecurrence(q, k, v, options), output);
}

function linearAttention<T>(ops: Ops<T>, x: T): T {
  const { input, output } = weights.linear;
  const [q, k, v, decay] = split(ops, ops.linear(x, input), KEYS, KEYS, VALUES, HEADS) as [T, T, T, T];
  const logDecay = ops.scale(ops.call("aten::sigmoid.out", decay), -0.1);
  return ops.linear(ops.linearRecurrence(q, k, v, { state: 3, keyHeads: KEY_HEADS, logDecay }), output);
}

function attention<T>(ops: Ops<T>, x: T, layer: number, window: number): T {
  const { input, output } = weights.attention;
  const [q, k, v] = split(ops, ops.linear(x, input), DIM, DIM, DIM) as [T, T, T];
  const cache = { layer, kvHeads: 2, headDim: DIM / 2 };
  return ops.linear(ops.attention(q, k, v, { cache, scale: 0.3, window }), output);
}

/** What models of these tests are made of beside recurrent layers. */
export interface RecurrentModelOptions {
  /** Most rows of a step. */
  readonly rows: number;
  readonly contextLength: number;
  /** Positions that a layer of attention sees, 0 for all; null for a model without one. */
  readonly window: number | null;
  /** Whether it has recurrent layers; one without has another layer of attention, which sees all. Default: true */
  readonly isRecurrent?: boolean;
}

/** The program of a model whose weights are always the same. */
export function recurrentProgram(cpu: Cpu, options: RecurrentModelOptions): Program {
  const { rows, contextLength, window, isRecurrent = true } = options;
  const input = (name: string, shape: readonly number[]) =>
    ({ name, spec: { dtype: "i64", shape }, smallest: shape.map(() => 1) }) as const;
  const forward: MethodSource = {
    name: "forward",
    inputs: [input("tokens", [1, rows]), input("positions", [rows]), input("rows", [rows])],
    build(builder, [tokens, , wanted]) {
      const ops = new Ops(builder);
      const seeing = (layer: number, positions: number) => (given: typeof ops, x: typeof tokens) =>
        attention(given, x!, layer, positions);
      const layers = [
        ...(isRecurrent ? [gatedConvolution<typeof tokens>, deltaRule<typeof tokens>] : [seeing(1, 0)]),
        ...(window === null ? [] : [seeing(0, window)]),
        ...(isRecurrent ? [linearAttention<typeof tokens>] : []),
      ];
      let x = ops.embedding(weights.embedding, tokens!);
      for (const [i, layer] of layers.entries())
        x = ops.add(x, layer(ops as never, ops.rmsNorm(x, weights.norms[i]!, 1e-5))!);
      const last = ops.rmsNorm(ops.selectRows(x, wanted!), weights.norms[4]!, 1e-5);
      return [ops.linear(last, weights.head)];
    },
  };
  const metadata = new Map([
    ["get_max_seq_len", rows],
    ["get_max_context_len", contextLength],
    ["get_vocab_size", VOCABULARY],
    ["get_max_logit_rows", rows],
  ]);
  return compile([forward], { registry: operators, cpu, metadata });
}
