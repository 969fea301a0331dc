/** Sample calls of embedding kernels, for tests and printed code. */
import { floats } from "../../cases.ts";
import { packEmbedding } from "../../layout/torchao-embedding.ts";
import { callOf, logicalWeights, packed, type SampleCall } from "../sample-call.ts";
import * as embeddings from "./reference.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./wasm/embedding.ts";
import { embeddingPackedWasm } from "./wasm/embedding-packed.ts";

const DIM = 64;
const ROWS = 32;
const WIDTHS = [2, 3, 4, 8];

const indices = () => BigInt64Array.of(3n, 0n, 31n);

export function embeddingCalls(): SampleCall[] {
  const y = () => new Float32Array(3 * DIM);
  const weights = { dtype: "f32", data: floats(ROWS * DIM) } as const;
  const float = () => ({ rows: ROWS, dim: DIM, weights, indices: indices(), y: y() });
  const ofWidth = (bits: number) => {
    const what = `${bits} bits`;
    const shared = packed(ROWS, DIM, bits, embeddingSharedWasm.layouts![0]!);
    const { qvals, scales } = logicalWeights(ROWS, DIM, bits);
    const table = packEmbedding(qvals, { bits, rows: ROWS, dim: DIM });
    const plainTable = () => ({
      ...{
        bits,
        rows: ROWS,
        dim: DIM,
        groups: scales.length / ROWS,
        packed: table,
        scales,
        zeros: new Int8Array(scales.length),
      },
      ...{ indices: indices(), y: y() },
    });
    const make = () => ({ weights: shared, indices: indices(), y: y(), first: 0, rows: ROWS });
    return [
      callOf(embeddingSharedWasm, embeddings.embeddingSharedReference, make, (args) => args.y, what),
      callOf(embeddingPackedWasm, embeddings.embeddingPackedReference, plainTable, (args) => args.y, what),
    ];
  };
  return [
    callOf(embeddingFloatWasm, embeddings.embeddingFloatReference, float, (args) => args.y),
    ...WIDTHS.flatMap(ofWidth),
  ];
}
