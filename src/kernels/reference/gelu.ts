/** GELU value by value, as plain loops. */
import type { UnaryArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { byErf, byTanh } from "./elementwise.ts";

const anyShape = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;

function pointwise(operator: string, formula: (value: number) => number): Kernel<UnaryArgs> {
  return {
    ...anyShape,
    name: `${operator}_f32_1x1x1_reference`,
    bind:
      ({ x, y }) =>
      () => {
        for (let i = 0; i < y.length; i++) y[i] = formula(x[i]!);
      },
  };
}

export const geluReference = pointwise("gelu", byErf);
export const geluTanhReference = pointwise("gelu_tanh", byTanh);
