/**
 * Reads rows of TorchAO-packed embedding tables: chunks of 128, 64 and 32 values, unpacked value by value. A tile is one index.
 */

import type { Kernel } from "../../../contract.ts";
import { type ChunkSize, chunkPieces } from "../../../layout/torchao-bits.ts";
import { TORCHAO_HEADER_BYTES } from "../../../layout/torchao-linear.ts";
import type { FunctionCode } from "../../../wasm/assembler/expression.ts";
import { call, type Expr, type Local, when, whileDo, widen } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, i32x4, int, ptr, v128 } from "../../../wasm/assembler/instructions.ts";
import { defineFunction, type Scope } from "../../../wasm/assembler/module.ts";
import { forLanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, repeat } from "../../../wasm/generate/loops.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { PackedEmbeddingArgs } from "../fields.ts";
import { indexType, readIndex } from "./embedding.ts";

const block = new ArgumentBlock({
  packed: "ptr",
  rowBytes: "ptr",
  scales: "ptr",
  zeros: "ptr",
  indices: "ptr",
  y: "ptr",
  threadScratch: "ptr",
  rows: "i32",
  dim: "i32",
  groups: "i32",
  groupSize: "i32",
});

const chunkSizes: readonly ChunkSize[] = [128, 64, 32];

const chunkParams = { from: "ptr", to: "ptr" } as const;

/** Function that unpacks a chunk to int8. */
function chunkCode(bits: number, chunk: ChunkSize): FunctionCode<typeof chunkParams, null> {
  return defineFunction(`packed_chunk_w${bits}_${chunk}`, chunkParams, ({ from, to }) =>
    chunkPieces(bits, chunk).map((pieces, i) => {
      const value = pieces
        .map(({ byte, shift, mask, at }): Expr<"i32"> => {
          const part = i32.and(i32.shr_u(i32.load8_u(from, byte), int(shift)), int(mask));
          return i32.shl(part, int(at));
        })
        .reduce((all, part) => i32.or(all, part));
      return i32.store8(to, bits < 8 ? i32.sub(value, int(2 ** (bits - 1))) : value, i);
    }),
  );
}

function packedCode(bits: number, index: "i32" | "i64"): KernelCode {
  const key = `packed_embedding_${index}_w${bits}`;
  return { key, build: () => packedFunctions(key, bits, index) };
}

function packedFunctions(key: string, bits: number, index: "i32" | "i64"): FunctionCode[] {
  const chunks = chunkSizes.map((size) => ({ size, code: chunkCode(bits, size) }));
  return [
    kernelFunction(key, block, (fields, { tile, thread }, scope) => {
      const { packed, rowBytes, indices, rows, dim, y, threadScratch } = fields;
      const constants = new VectorConstants(scope);
      const row = scope.local("i32", "row");
      const isKnown = scope.local("i32", "is_known");
      const from = scope.local("ptr", "from");
      const to = scope.local("ptr", "to");
      const left = scope.local("i32", "left");
      const values = scope.local("ptr", "values");
      return [
        constants.prepare,
        readIndex(index, { indices, rows, tile, row, isKnown }),
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        when(
          isKnown,
          [
            from.set(elementAt(packed, row, rowBytes)),
            values.set(elementAt(threadScratch, i32.mul(thread, dim), 1)),
            to.set(values),
            left.set(dim),
            chunks.map(({ size, code }) =>
              whileDo(i32.ge_u(left, int(size)), [
                call(code, { from, to }),
                advance(from, (size * bits) / 8),
                advance(to, size),
                left.set(i32.sub(left, int(size))),
              ]),
            ),
            scaleGroups(fields, { row, values, scope, constants }),
          ],
          forLanes({ scope, constants, count: dim, pointers: [[y]] }, (lanes) => [
            lanes.store(y, constants.floats(Number.NaN)),
          ]),
        ),
      ];
    }),
    ...chunks.map(({ code }) => code),
  ];
}

interface RowValues {
  readonly row: Local<"i32">;
  readonly values: Local<"ptr">;
  readonly scope: Scope;
  readonly constants: VectorConstants;
}

/** y = (value - zero) * scale, group by group. */
function scaleGroups(
  { scales, zeros, y, groups, groupSize }: FieldsOf<typeof block>,
  { row, values, scope, constants }: RowValues,
) {
  const scale = scope.local("v128", "scale");
  const zero = scope.local("v128", "zero");
  const first = i32.mul(row, groups);
  return [
    scales.set(elementAt(scales, first, 4)),
    zeros.set(ptr.add(zeros, widen(first))),
    repeat(scope.local("i32", "group"), groups, [
      scale.set(v128.load32_splat(scales)),
      zero.set(f32x4.convert_i32x4_s(i32x4.splat(i32.load8_s(zeros)))),
      forLanes({ scope, constants, count: groupSize, pointers: [[values, "int8"], [y]] }, (lanes) => [
        lanes.store(y, f32x4.mul(f32x4.sub(lanes.load(values, "int8"), zero), scale)),
      ]),
      advance(scales, 4),
      advance(zeros, 1),
    ]),
  ];
}

export const embeddingPackedWasm: Kernel<PackedEmbeddingArgs> = wasmKernel<PackedEmbeddingArgs>({
  ...plainRow,
  name: "embedding_wx_1x1x4_wasm_simd",
  layouts: ["torchao_embedding"],
  bits: [1, 2, 3, 4, 5, 6, 7, 8],
  scratchBytes: ({ dim }, threads) => threads * dim,
  step({ bits, rows, dim, packed, scales, zeros, indices, y }, place) {
    const groups = scales.length / rows;
    const args = block.encode({
      packed: place.read(packed) + TORCHAO_HEADER_BYTES,
      rowBytes: (dim * bits) / 8,
      scales: place.read(scales),
      zeros: place.read(zeros),
      indices: place.read(indices),
      y: place.write(y),
      threadScratch: place.scratch,
      ...{ rows, dim, groups },
      groupSize: dim / groups,
    });
    return { phases: [{ code: packedCode(bits, indexType(indices)), tiles: indices.length, args }] };
  },
});
