/**
 * Inputs of a step: tokens, their positions, and the rows whose logits are wanted or, for drafts, the hidden states before
 * them.
 */
import type { Tensor } from "../tensor.ts";
import { nextToken, type Part } from "./step-plan.ts";

/** Arrays for the largest step; each step fills their beginnings. */
export class StepInputs {
  readonly #tokens: BigInt64Array;
  readonly #positions: BigInt64Array;
  readonly #wanted: BigInt64Array;
  /** Hidden states before the tokens of drafts, grown to the most drafts of a step so far. */
  #before = new Float32Array(0);

  constructor(tokens: number) {
    this.#tokens = new BigInt64Array(tokens);
    this.#positions = new BigInt64Array(tokens);
    this.#wanted = new BigInt64Array(tokens);
  }

  /**
   * Gives the inputs of the next step, valid until the one after it. Where no logits are wanted, those of the last row are
   * asked for.
   */
  fill(parts: readonly Part[]): readonly Tensor[] {
    let row = 0;
    let wanted = 0;
    for (const { pending, tokens } of parts) {
      const { ids, logitsFrom, draft } = pending;
      const start = nextToken(pending);
      for (let i = start; i < start + tokens; i++, row++) {
        if (i >= logitsFrom) this.#wanted[wanted++] = BigInt(row);
        this.#tokens[row] = BigInt(ids[i]!);
        this.#positions[row] = BigInt(draft?.position ?? i);
      }
    }
    if (wanted === 0) this.#wanted[wanted++] = BigInt(row - 1);
    const vector = (values: BigInt64Array, shape: readonly number[]): Tensor => ({
      dtype: "i64",
      shape,
      data: values.subarray(0, shape.at(-1)),
    });
    const inputs = [vector(this.#tokens, [1, row]), vector(this.#positions, [row])];
    return [...inputs, this.#hidden(parts) ?? vector(this.#wanted, [wanted])];
  }

  /** The hidden states before the tokens of drafts [1, T, hidden]; null for a step without drafts. */
  #hidden(parts: readonly Part[]): Tensor | null {
    const size = parts[0]!.pending.draft?.before.length;
    if (size === undefined) return null;
    if (this.#before.length < parts.length * size) this.#before = new Float32Array(parts.length * size);
    for (const [i, { pending }] of parts.entries()) this.#before.set(pending.draft!.before, i * size);
    return { dtype: "f32", shape: [1, parts.length, size], data: this.#before.subarray(0, parts.length * size) };
  }
}
