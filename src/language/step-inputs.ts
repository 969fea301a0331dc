/** The inputs of a step: tokens, their positions, and the rows whose logits are wanted. */
import type { Tensor } from "../tensor.ts";
import type { Part } from "./step-plan.ts";

/** Arrays for the largest step, of which each step fills the start. */
export class StepInputs {
  readonly #tokens: BigInt64Array;
  readonly #positions: BigInt64Array;
  readonly #wanted: BigInt64Array;

  constructor(rows: number) {
    this.#tokens = new BigInt64Array(rows);
    this.#positions = new BigInt64Array(rows);
    this.#wanted = new BigInt64Array(rows);
  }

  /** Inputs of the next step, valid until the one after it. A step that wants no logits is asked for those of its last row. */
  fill(parts: readonly Part[]): readonly Tensor[] {
    let row = 0;
    let wanted = 0;
    for (const { pending, rows } of parts) {
      const { sequence, ids, logitsFrom } = pending;
      const end = sequence.position + rows;
      for (let i = sequence.position; i < end; i++, row++) {
        if (i >= logitsFrom) this.#wanted[wanted++] = BigInt(row);
        this.#tokens[row] = BigInt(ids[i]!);
        this.#positions[row] = BigInt(i);
      }
    }
    if (wanted === 0) this.#wanted[wanted++] = BigInt(row - 1);
    const vector = (values: BigInt64Array, shape: readonly number[]): Tensor => ({
      dtype: "i64",
      shape,
      data: values.subarray(0, shape.at(-1)),
    });
    return [vector(this.#tokens, [1, row]), vector(this.#positions, [row]), vector(this.#wanted, [wanted])];
  }
}
