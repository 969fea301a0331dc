/** Reference kernels that copy values: gathered columns, joined columns, and select. */

import { type Kernel, referenceRow } from "../../contract.ts";
import type { GatherColumnsArgs, JoinColumnsArgs, SelectArgs } from "./fields.ts";

export const gatherColumnsReference: Kernel<GatherColumnsArgs> = {
  ...referenceRow,
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

export const joinColumnsReference: Kernel<JoinColumnsArgs> = {
  ...referenceRow,
  name: "join_columns_f32_1x1x1_reference",
  bind({ rows, first, second, left, right, y }) {
    return () => {
      for (let row = 0; row < rows; row++) {
        y.set(left.subarray(row * first, (row + 1) * first), row * (first + second));
        y.set(right.subarray(row * second, (row + 1) * second), row * (first + second) + first);
      }
    };
  },
};

export const selectReference: Kernel<SelectArgs> = {
  ...referenceRow,
  name: "select_any_1x1x1_reference",
  bind({ outer, stride, offset, blockBytes, x, y }) {
    const blocks = Array.from({ length: outer }, (_, i) => x.subarray(i * stride + offset).subarray(0, blockBytes));
    return () => {
      for (let i = 0; i < outer; i++) y.set(blocks[i]!, i * blockBytes);
    };
  },
};
