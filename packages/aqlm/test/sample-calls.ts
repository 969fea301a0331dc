/** Sample calls of AQLM's rows of WebAssembly, beside the same rows on one thread: some of them round more than the reference. */

import { f32ToF16 } from "../../../src/half.ts";
import { callOf, type SampleCall } from "../../../src/kernels/families/sample-call.ts";
import { Random } from "../../../test/support/random.ts";
import type { AqlmArgs } from "../src/arguments.ts";
import { codeArray, formCounts } from "../src/form.ts";
import { aqlmKernels } from "../src/kernels.ts";
import { openCodes, packCodes } from "../src/layout.ts";

const FORM = { n: 136, k: 264, codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 } as const;
/** Rows of activations from one to more than any row takes at a time. */
const ROWS = [1, 5, 70];

/** Calls of all rows of AQLM for as many rows of activations as they serve. */
export function aqlmCalls(): SampleCall[] {
  const random = new Random(7);
  const { outputs, inputs, entries } = formCounts(FORM);
  const codes = codeArray(FORM.bits, outputs * inputs * FORM.codebooks).map(() => random.integer(0, entries - 1));
  const halves = (count: number) => Uint16Array.from(random.floats(count), f32ToF16);
  const vectors = halves(FORM.codebooks * entries * FORM.outGroup * FORM.inGroup);
  const scales = halves(outputs);
  const weights = { ...FORM, codes: codes as Uint8Array, vectors, scales };
  const packed = openCodes(packCodes(weights));
  const bias = random.floats(FORM.n);
  return aqlmKernels
    .filter(({ target }) => target === "wasm")
    .flatMap((kernel) =>
      ROWS.filter((m) => m >= kernel.mStep).map((m) => {
        const x = random.floats(m * FORM.k);
        const make = (): AqlmArgs => ({ m, x, codes: packed, vectors, scales, bias, y: new Float32Array(m * FORM.n) });
        return callOf(kernel, kernel, make, ({ y }) => y, `${m} rows`);
      }),
    );
}
