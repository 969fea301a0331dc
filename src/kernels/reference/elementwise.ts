/** Elementwise and row operators as plain loops: add, gates, scale, softcap, softmax, sums, argmax, columns in another order, select. */

import { groupCount } from "../../quantized.ts";
import type {
  ArgmaxArgs,
  BinaryArgs,
  ClampedGateArgs,
  GatherColumnsArgs,
  GroupSumsArgs,
  ScaleRowsArgs,
  SelectArgs,
  SoftmaxArgs,
  SoftplusArgs,
  UnaryArgs,
} from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { erf } from "./erf.ts";

const anyShape = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;

export const addReference: Kernel<BinaryArgs> = {
  ...anyShape,
  name: "add_f32_1x1x1_reference",
  bind:
    ({ a, b, alpha, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! + alpha * b[i]!;
    },
};

/** y = f(a) * b. */
function gate(operator: string, activation: (value: number) => number): Kernel<BinaryArgs> {
  return {
    ...anyShape,
    name: `${operator}_f32_1x1x1_reference`,
    bind:
      ({ a, b, y }) =>
      () => {
        for (let i = 0; i < y.length; i++) y[i] = activation(a[i]!) * b[i]!;
      },
  };
}

const sigmoid = (value: number) => 1 / (1 + Math.exp(-value));

/** a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))). */
export function byTanh(a: number): number {
  return 0.5 * a * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (a + 0.044715 * a ** 3)));
}

/** a / 2 * (1 + erf(a / sqrt 2)). */
export function byErf(a: number): number {
  return 0.5 * a * (1 + erf(a * Math.SQRT1_2));
}

/** silu(a) = a / (1 + exp(-a)). */
export const swigluReference = gate("swiglu", (a) => a / (1 + Math.exp(-a)));

export const gegluReference = gate("geglu", byTanh);

export const erfGegluReference = gate("erf_geglu", byErf);

/** a * sigmoid(1.702 a). */
export const quickGegluReference = gate("quick_geglu", (a) => a * sigmoid(1.702 * a));

export const regluReference = gate("reglu", (a) => Math.max(a, 0));

/** relu(a)^2. */
export const squaredRegluReference = gate("squared_reglu", (a) => Math.max(a, 0) ** 2);

export const multiplyReference = gate("multiply", (a) => a);

export const sigmoidGateReference = gate("sigmoid_gate", sigmoid);

export const sigmoidReference: Kernel<UnaryArgs> = {
  ...anyShape,
  name: "sigmoid_f32_1x1x1_reference",
  bind:
    ({ x, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = sigmoid(x[i]!);
    },
};

/** ln(1 + exp(a)), without what overflows. */
const softplus = (a: number) => Math.max(a, 0) + Math.log1p(Math.exp(-Math.abs(a)));

export const softplusReference: Kernel<SoftplusArgs> = {
  ...anyShape,
  name: "softplus_f32_1x1x1_reference",
  bind:
    ({ dim, x, bias, factors, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = factors[i % dim]! * softplus(x[i]! + bias[i % dim]!);
    },
};

export const scaleRowsReference: Kernel<ScaleRowsArgs> = {
  ...anyShape,
  name: "scale_rows_f32_1x1x1_reference",
  bind:
    ({ dim, x, factors, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = factors[Math.floor(i / dim) % factors.length]! * x[i]!;
    },
};

export const clampedGateReference: Kernel<ClampedGateArgs> = {
  ...anyShape,
  name: "clamped_gate_f32_1x1x1_reference",
  bind:
    ({ a, b, slope, limit, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) {
        const gate = Math.min(a[i]!, limit);
        y[i] = (Math.max(-limit, Math.min(b[i]!, limit)) + 1) * gate * sigmoid(slope * gate);
      }
    },
};

export const scaleReference: Kernel<UnaryArgs> = {
  ...anyShape,
  name: "scale_f32_1x1x1_reference",
  bind:
    ({ x, value, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = x[i]! * value;
    },
};

/** y = cap * tanh(x / cap). */
export const softcapReference: Kernel<UnaryArgs> = {
  ...anyShape,
  name: "softcap_f32_1x1x1_reference",
  bind:
    ({ x, value: cap, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = cap * Math.tanh(x[i]! / cap);
    },
};

export const softmaxReference: Kernel<SoftmaxArgs> = {
  ...anyShape,
  name: "softmax_f32_1x1x1_reference",
  bind:
    ({ dim, x, y }) =>
    () => {
      for (let start = 0; start < x.length; start += dim) {
        let max = Number.NEGATIVE_INFINITY;
        for (let c = start; c < start + dim; c++) if (x[c]! > max) max = x[c]!;
        let total = 0;
        for (let c = start; c < start + dim; c++) total += Math.exp(x[c]! - max);
        for (let c = start; c < start + dim; c++) y[c] = Math.exp(x[c]! - max) / total;
      }
    },
};

export const groupSumsReference: Kernel<GroupSumsArgs> = {
  ...anyShape,
  name: "group_sums_f32_1x1x1_reference",
  bind({ rows, k, groupSize, x, y }) {
    const groups = groupCount({ k, groupSize });
    return () => {
      for (let row = 0; row < rows; row++)
        for (let group = 0; group < groups; group++) {
          let sum = 0;
          for (let c = group * groupSize; c < Math.min(k, (group + 1) * groupSize); c++) sum += x[row * k + c]!;
          y[row * groups + group] = sum;
        }
    };
  },
};

export const argmaxReference: Kernel<ArgmaxArgs> = {
  ...anyShape,
  name: "argmax_f32_1x1x1_reference",
  bind:
    ({ dim, x, y }) =>
    () => {
      for (let row = 0; row < y.length; row++) {
        let best = 0;
        for (let c = 1; c < dim && !Number.isNaN(x[row * dim + best]); c++)
          if (!(x[row * dim + c]! <= x[row * dim + best]!)) best = c;
        y[row] = BigInt(best);
      }
    },
};

export const gatherColumnsReference: Kernel<GatherColumnsArgs> = {
  ...anyShape,
  name: "gather_columns_f32_1x1x1_reference",
  bind({ rows, dim, x, columns, y }) {
    return () => {
      for (let row = 0; row < rows; row++)
        for (let i = 0; i < columns.length; i++) {
          const column = Number(columns[i]);
          y[row * columns.length + i] = column >= 0 && column < dim ? x[row * dim + column]! : Number.NaN;
        }
    };
  },
};

export const selectReference: Kernel<SelectArgs> = {
  ...anyShape,
  name: "select_any_1x1x1_reference",
  bind({ outer, stride, offset, blockBytes, x, y }) {
    const blocks = Array.from({ length: outer }, (_, i) => x.subarray(i * stride + offset).subarray(0, blockBytes));
    return () => {
      for (let i = 0; i < outer; i++) y.set(blocks[i]!, i * blockBytes);
    };
  },
};
