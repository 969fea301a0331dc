/** Elementwise and row operators as plain loops: add, SwiGLU, GEGLU, scale, softcap, softmax, argmax, select. */
import type { ArgmaxArgs, BinaryArgs, SelectArgs, SoftmaxArgs, UnaryArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";

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

/** y = silu(a) * b, silu(a) = a / (1 + exp(-a)). */
export const swigluReference: Kernel<BinaryArgs> = {
  ...anyShape,
  name: "swiglu_f32_1x1x1_reference",
  bind:
    ({ a, b, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) y[i] = (a[i]! / (1 + Math.exp(-a[i]!))) * b[i]!;
    },
};

/** y = gelu(a) * b, gelu(a) = a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))). */
export const gegluReference: Kernel<BinaryArgs> = {
  ...anyShape,
  name: "geglu_f32_1x1x1_reference",
  bind:
    ({ a, b, y }) =>
    () => {
      for (let i = 0; i < y.length; i++) {
        const x = a[i]!;
        y[i] = 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))) * b[i]!;
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

export const argmaxReference: Kernel<ArgmaxArgs> = {
  ...anyShape,
  name: "argmax_f32_1x1x1_reference",
  bind:
    ({ dim, x, y }) =>
    () => {
      for (let row = 0; row < y.length; row++) {
        let best = 0;
        for (let c = 1; c < dim; c++) if (x[row * dim + c]! > x[row * dim + best]!) best = c;
        y[row] = BigInt(best);
      }
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
