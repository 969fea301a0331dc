/** Reference kernels of rotary embedding (RoPE): plain loops. */

import { type Kernel, referenceRow } from "../../contract.ts";
import type { RopeAnglesArgs, RopeArgs } from "./fields.ts";

export const ropeAnglesReference: Kernel<RopeAnglesArgs> = {
  ...referenceRow,
  name: "rope_angles_f32_1x1x1_reference",
  bind:
    ({ tokens, position, inverseFrequencies, scale, angles }) =>
    () => {
      const half = inverseFrequencies.length;
      for (let t = 0; t < tokens; t++) {
        const at = Number(position.length > 1 ? position[t]! : position[0]! + BigInt(t));
        for (let i = 0; i < half; i++) {
          const angle = Math.fround(at * inverseFrequencies[i]!);
          angles[2 * half * t + i] = Math.cos(angle) * scale;
          angles[2 * half * t + half + i] = Math.sin(angle) * scale;
        }
      }
    },
};

export const ropeReference: Kernel<RopeArgs> = {
  ...referenceRow,
  name: "rope_f32_1x1x1_reference",
  bind:
    ({ tokens, heads, headDim, half, x, angles, y }) =>
    () => {
      for (let t = 0; t < tokens; t++) {
        for (let h = 0; h < heads; h++) {
          const start = (t * heads + h) * headDim;
          for (let i = 0; i < half; i++) {
            const cos = angles[2 * half * t + i]!;
            const sin = angles[2 * half * t + half + i]!;
            const a = x[start + i]!;
            const b = x[start + half + i]!;
            y[start + i] = a * cos - b * sin;
            y[start + half + i] = b * cos + a * sin;
          }
          for (let i = 2 * half; i < headDim; i++) y[start + i] = x[start + i]!;
        }
      }
    },
};
