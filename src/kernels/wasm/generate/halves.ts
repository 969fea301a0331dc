/** Converts between float32 and float16 (IEEE binary16: one sign bit, five exponent bits, ten fraction bits). */
import { type Body, type Expr, type Local, shuffle, when } from "../assembler/expression.ts";
import { f32x4, i16x8, i32x4, int, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import type { VectorConstants } from "./weight-fields.ts";

/** Converts f16 bit patterns, sign-extended in 32-bit lanes, to float32; no step is slow for subnormal numbers. */
export function floatsOfHalves(words: Expr<"v128">, constants: VectorConstants): Expr<"v128"> {
  const moved = constants.temporary("moved_half");
  const sized = constants.temporary("sized_half");
  const magnitude = v128.and(moved.tee(i32x4.shl(words, int(13))), constants.words(0x0fffe000));
  // The exponent is raised to the top of float32's, so that infinity and NaN survive scaling back down.
  const raised = i32x4.add(magnitude, constants.words(0x70000000));
  const lowered = sized.tee(f32x4.mul(raised, constants.floats(2 ** -112)));
  // With exponent 0 the result is 2^-15 (1 + fraction); its true value is twice that less 2^-14.
  const rest = f32x4.pmin(constants.floats(0), f32x4.sub(lowered, constants.floats(2 ** -14)));
  return v128.or(f32x4.add(rest, sized), v128.and(moved, constants.words(0x80000000)));
}

/** Eight f16 numbers at an address, and the two vectors for their floats. */
export interface HalfSource {
  readonly from: Expr<"ptr">;
  readonly offset: number;
  readonly floats: readonly Local<"v128">[];
}

/** Converts eight f16 numbers of each source; if none has the lowest or highest exponent, by shifting bits only. */
export function eightHalves(
  { scope, constants }: { scope: Scope; constants: VectorConstants },
  sources: readonly HalfSource[],
): Body {
  const halves = scope.localArray("v128", "halves", sources.length);
  const least = constants.temporary("least_exponent");
  const shorts = (short: number) => constants.words(short * 0x10001);
  // Exponents 0 and 31 become 1 and 32 (mod 32: 0), whose upper four bits are 0.
  const exponent = (half: Expr<"v128">) => v128.and(i16x8.add(half, shorts(0x0400)), shorts(0x7800));
  const load = sources.map(({ from, offset }, i) => {
    const loaded = exponent(halves[i]!.tee(v128.load(from, offset)));
    return least.set(i === 0 ? loaded : i16x8.min_u(loaded, least));
  });
  const high = constants.temporary("high_bits");
  const low = constants.temporary("low_bits");
  const usual = sources.map(({ floats }, i) => [
    high.set(i16x8.add(v128.and(i16x8.shr_s(halves[i]!, int(3)), shorts(0x8fff)), shorts(0x3800))),
    low.set(i16x8.shl(halves[i]!, int(13))),
    floats.map((local, quad) => local.set(interleaved(low, high, quad))),
  ]);
  const others = sources.map(({ floats }, i) => [
    floats[0]!.set(floatsOfHalves(i32x4.extend_low_i16x8_s(halves[i]!), constants)),
    floats[1]!.set(floatsOfHalves(i32x4.extend_high_i16x8_s(halves[i]!), constants)),
  ]);
  return [load, when(i16x8.all_true(least), usual, others)];
}

/** Interleaves the first (`quad` 0) or last four 16-bit lanes of two vectors, those of `low` as the lower halves. */
function interleaved(low: Expr<"v128">, high: Expr<"v128">, quad: number): Expr<"v128"> {
  const lanes = [0, 1, 2, 3].flatMap((lane) => {
    const byte = 2 * (4 * quad + lane);
    return [byte, byte + 1, 16 + byte, 17 + byte];
  });
  return shuffle(low, high, lanes);
}

/** Converts floats to the nearest f16 bit patterns in 32-bit lanes, ties to even; overflow gives infinity. */
export function halvesOfFloats(
  value: Local<"v128">,
  scope: Scope,
  constants: VectorConstants,
): { body: Body; halves: Expr<"v128"> } {
  const magnitude = scope.local("v128", "magnitude");
  const half = scope.local("v128", "half");
  const words = (word: number) => constants.words(word);
  const odd = v128.and(i32x4.shr_u(magnitude, int(13)), words(1));
  const normal = i32x4.shr_u(i32x4.add(i32x4.sub(magnitude, words(0x38000000 - 0xfff)), odd), int(13));
  // Adding 0.5 aligns the last bit of a subnormal half with the last bit of the float, which rounds to even.
  const subnormal = i32x4.sub(f32x4.add(magnitude, constants.floats(0.5)), words(0x3f000000));
  const choose = (condition: Expr<"v128">, yes: Expr<"v128">) => half.set(v128.bitselect(yes, half, condition));
  return {
    body: [
      magnitude.set(v128.and(value, words(0x7fffffff))),
      half.set(normal),
      choose(i32x4.lt_u(magnitude, words(0x38800000)), subnormal),
      choose(i32x4.gt_u(magnitude, words(0x477fefff)), words(0x7c00)),
      choose(i32x4.gt_u(magnitude, words(0x7f800000)), words(0x7e00)),
    ],
    halves: v128.or(half, v128.and(i32x4.shr_u(value, int(16)), words(0x8000))),
  };
}
