/** WebAssembly kernels of the sampler's passes over logits, bit-identical to the reference. */

import type { Kernel } from "../../contract.ts";
import { type Body, type Expr, type Local, vector, when } from "../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, i32x4, int, v128 } from "../../wasm/assembler/instructions.ts";
import { largestLane } from "../../wasm/generate/lanes.ts";
import { advance, forRange } from "../../wasm/generate/loops.ts";
import { VectorConstants } from "../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../wasm/kernel-code.ts";
import { BLOCK_TOKENS, type VocabularyMaximaArgs, type VocabularyWeightsArgs } from "./fields.ts";
import { LEAST_EXPONENT, POWER, SUM_LANES, WHOLE } from "./reference.ts";

/** Vectors that hold the SUM_LANES lanes, and additions to each lane in a block. */
const VECTORS = SUM_LANES / 4;
const ROUNDS = BLOCK_TOKENS / SUM_LANES;
const BLOCK_BYTES = 4 * BLOCK_TOKENS;
const WORDS = BLOCK_TOKENS / 32;

const vectors = <R>(make: (index: number) => R): R[] => Array.from({ length: VECTORS }, (_, index) => make(index));
const replaced = (a: Expr<"v128">, b: Expr<"v128">, where: Expr<"v128">) => v128.bitselect(b, a, where);

const maximaBlock = new ArgumentBlock({ x: "ptr", allowed: "ptr", maxima: "ptr", blocks: "i32" });

const maximaCode: KernelCode = {
  key: "vocabulary_maxima",
  build: () => [
    kernelFunction("vocabulary_maxima", maximaBlock, ({ x, allowed, maxima, blocks }, _params, scope) => {
      const constants = new VectorConstants(scope);
      const most = scope.localArray("v128", "most", VECTORS);
      const odd = scope.local("v128", "odd");
      const value = scope.local("v128", "value");
      const at = scope.local("ptr", "at");
      const block = scope.local("i32", "block");
      const turn = scope.local("i32", "turn");
      const bits = scope.local("v128", "bits");
      const word = scope.local("v128", "word");
      const none = constants.floats(Number.NEGATIVE_INFINITY);
      /** Masks a word of 32 logits, four at a time: `bits` selects the bit of each. */
      const maskWord: Body = [
        bits.set(vector([1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0])),
        word.set(v128.load32_splat(allowed)),
        Array.from({ length: 8 }, (_, i) => [
          v128.store(
            at,
            replaced(v128.load(at, 16 * i), none, i32x4.eq(v128.and(word, bits), constants.words(0))),
            16 * i,
          ),
          bits.set(i32x4.shl(bits, int(4))),
        ]),
      ];
      const mask: Body = [
        at.set(x),
        forRange(turn, int(0), int(WORDS), [
          when(i32.ne(i32.load(allowed), int(-1)), maskWord),
          advance(at, 4 * 32),
          advance(allowed, 4),
        ]),
      ];
      const largest: Body = [
        at.set(x),
        odd.set(constants.words(0)),
        most.map((lanes) => lanes.set(none)),
        forRange(turn, int(0), int(ROUNDS), [
          vectors((v) => [
            value.set(v128.load(at, 16 * v)),
            most[v]!.set(f32x4.pmax(most[v]!, value)),
            odd.set(v128.or(odd, f32x4.ne(value, value))),
          ]),
          advance(at, 4 * SUM_LANES),
        ]),
        most.slice(1).map((lanes) => most[0]!.set(f32x4.pmax(most[0]!, lanes))),
      ];
      return [
        constants.prepare,
        forRange(block, int(0), blocks, [
          mask,
          largest,
          f32.store(maxima, largestLane(most[0]!)),
          when(v128.any_true(odd), [f32.store(maxima, float(Number.NaN))]),
          advance(x, BLOCK_BYTES),
          advance(maxima, 4),
        ]),
      ];
    }),
  ],
};

export const vocabularyMaximaWasm: Kernel<VocabularyMaximaArgs> = wasmKernel<VocabularyMaximaArgs>({
  ...plainRow,
  name: "vocabulary_maxima_f32_1x1x4_wasm_simd",
  step({ x, allowed, maxima }, place) {
    const values = { x: place.write(x), allowed: place.read(allowed), maxima: place.write(maxima) };
    const args = maximaBlock.encode({ ...values, blocks: maxima.length });
    return { phases: [{ code: maximaCode, tiles: 1, args }] };
  },
});

const weightsBlock = new ArgumentBlock({
  x: "ptr",
  maxima: "ptr",
  settings: "ptr",
  weights: "ptr",
  sums: "ptr",
  blocks: "i32",
});

interface PowerLocals {
  readonly exponent: Local<"v128">;
  readonly whole: Local<"v128">;
  readonly constants: VectorConstants;
}

/** result = 2^exponent, for exponents of at most 0. */
function power({ exponent, whole, constants }: PowerLocals, result: Local<"v128">): Body {
  const floats = (value: number) => constants.floats(value);
  const polynomial = [...POWER.slice(1), 1].reduce<Expr<"v128">>(
    (sum, coefficient) => f32x4.add(f32x4.mul(sum, result), floats(coefficient)),
    floats(POWER[0]),
  );
  return [
    exponent.set(f32x4.pmax(exponent, floats(LEAST_EXPONENT - 2))),
    whole.set(f32x4.add(exponent, floats(WHOLE))),
    result.set(f32x4.sub(exponent, f32x4.sub(whole, floats(WHOLE)))),
    // The low bits of `whole` contain the integer.
    result.set(i32x4.add(polynomial, i32x4.shl(whole, int(23)))),
    result.set(v128.andnot(result, f32x4.lt(exponent, floats(LEAST_EXPONENT)))),
  ];
}

const weightsCode: KernelCode = {
  key: "vocabulary_weights",
  build: () => [
    kernelFunction("vocabulary_weights", weightsBlock, (fields, _params, scope) => {
      const { x, maxima, settings, weights, sums, blocks } = fields;
      const constants = new VectorConstants(scope);
      const [most, scale, least] = scope.localArray("v128", "setting", 3) as [
        Local<"v128">,
        Local<"v128">,
        Local<"v128">,
      ];
      const totals = scope.localArray("v128", "total", VECTORS);
      const value = scope.local("v128", "value");
      const weight = scope.local("v128", "weight");
      const from = scope.local("ptr", "from");
      const to = scope.local("ptr", "to");
      const block = scope.local("i32", "block");
      const turn = scope.local("i32", "turn");
      const locals = { exponent: scope.local("v128", "exponent"), whole: scope.local("v128", "whole"), constants };
      const weigh: Body = [
        from.set(x),
        to.set(weights),
        totals.map((total) => total.set(constants.words(0))),
        forRange(turn, int(0), int(ROUNDS), [
          vectors((v) => [
            value.set(v128.load(from, 16 * v)),
            locals.exponent.set(f32x4.mul(f32x4.sub(value, most), scale)),
            power(locals, weight),
            weight.set(v128.andnot(weight, f32x4.lt(value, least))),
            v128.store(to, weight, 16 * v),
            totals[v]!.set(f32x4.add(totals[v]!, weight)),
          ]),
          advance(from, 4 * SUM_LANES),
          advance(to, 4 * SUM_LANES),
        ]),
        f32.store(sums, sumOfHalves(totals)),
      ];
      return [
        constants.prepare,
        [most, scale, least].map((setting, i) => setting.set(v128.load32_splat(settings, 4 * i))),
        forRange(block, int(0), blocks, [
          when(f32.le(f32.load(settings, 8), f32.load(maxima)), weigh, [f32.store(sums, float(0))]),
          [x, weights].map((pointer) => advance(pointer, BLOCK_BYTES)),
          [maxima, sums].map((pointer) => advance(pointer, 4)),
        ]),
      ];
    }),
  ],
};

/**
 * The sum of 16 lanes in four vectors, adding upper halves to lower ones until one lane is left; overwrites the first two
 * vectors.
 */
function sumOfHalves(totals: readonly Local<"v128">[]): Expr<"f32"> {
  const [a, b, c, d] = totals as [Local<"v128">, Local<"v128">, Local<"v128">, Local<"v128">];
  const four = f32x4.add(f32x4.add(a, c), f32x4.add(b, d));
  const lane = (i: number) => f32x4.extract_lane(i === 0 ? a.tee(four) : a, i);
  return f32.add(f32.add(lane(0), lane(2)), f32.add(lane(1), lane(3)));
}

export const vocabularyWeightsWasm: Kernel<VocabularyWeightsArgs> = wasmKernel<VocabularyWeightsArgs>({
  ...plainRow,
  name: "vocabulary_weights_f32_1x1x4_wasm_simd",
  step({ x, maxima, settings, weights, sums }, place) {
    const read = { x: place.read(x), maxima: place.read(maxima), settings: place.read(settings) };
    const values = { ...read, weights: place.write(weights), sums: place.write(sums), blocks: sums.length };
    return { phases: [{ code: weightsCode, tiles: 1, args: weightsBlock.encode(values) }] };
  },
});
