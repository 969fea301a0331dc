/** Layer norm of rows. A tile is a row. */
import type { LayerNormArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { type Body, type Expr, type Local, vector } from "./assembler/expression.ts";
import { f32, f32x4, float, i32, v128 } from "./assembler/instructions.ts";
import { forLanes, sumOfLanes } from "./generate/lanes.ts";
import { elementAt } from "./generate/loops.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "./kernel-code.ts";

const layerNormBlock = new ArgumentBlock({
  x: "ptr",
  weight: "ptr",
  bias: "ptr",
  y: "ptr",
  dim: "i32",
  eps: "f32",
});

function layerNormCode(hasBias: boolean): KernelCode {
  const key = hasBias ? "layer_norm" : "layer_norm_without_bias";
  return {
    key,
    build: () => [
      kernelFunction(key, layerNormBlock, ({ x, weight, bias, y, dim, eps }, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const [value, sums, mean] = ["value", "sums", "mean"].map((name) => scope.local("v128", name));
        const at = scope.local("ptr", "at");
        const start: Body = [at.set(elementAt(x, i32.mul(tile, dim), 4))];
        const average = () => f32.div(sumOfLanes(sums!), f32.convert_i32_s(dim));
        const scaled = () => f32x4.mul(f32x4.sub(value!, mean!), sums!);
        return [
          constants.prepare,
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          start,
          forLanes({ scope, constants, count: dim, pointers: [[at]] }, (lanes) => [
            sums!.set(f32x4.add(sums!, lanes.load(at))),
          ]),
          mean!.set(f32x4.splat(average())),
          sums!.set(constants.floats(0)),
          start,
          forLanes({ scope, constants, count: dim, pointers: [[at]] }, (lanes) => [
            // Lanes of single values that are not used are the mean's negative: their squares must not count.
            value!.set(lanes.count === 4 ? f32x4.sub(v128.load(at), mean!) : onlyFirst(f32.load(at), mean!)),
            sums!.set(f32x4.add(sums!, f32x4.mul(value!, value!))),
          ]),
          sums!.set(f32x4.splat(f32.div(float(1), f32.sqrt(f32.add(average(), eps))))),
          start,
          forLanes(
            { scope, constants, count: dim, pointers: [[at], [weight], [y], ...(hasBias ? [[bias] as const] : [])] },
            (lanes) => [
              value!.set(lanes.load(at)),
              value!.set(f32x4.mul(scaled(), lanes.load(weight))),
              lanes.store(y, hasBias ? f32x4.add(value!, lanes.load(bias)) : value!),
            ],
          ),
        ];
      }),
    ],
  };
}

/** A number less the first lane of a vector, with zeros behind it. */
function onlyFirst(value: Expr<"f32">, mean: Local<"v128">): Expr<"v128"> {
  return f32x4.replace_lane(vector(new Array(16).fill(0)), f32.sub(value, f32x4.extract_lane(mean, 0)), 0);
}

const [withBias, withoutBias] = [true, false].map(layerNormCode);

export const layerNormWasm: Kernel<LayerNormArgs> = wasmKernel<LayerNormArgs>({
  ...plainRow,
  name: "layer_norm_f32_1x1x4_wasm_simd",
  step({ dim, x, weight, bias, eps, y }, place) {
    const places = {
      x: place.read(x),
      weight: place.read(weight),
      bias: bias ? place.read(bias) : 0,
      y: place.write(y),
    };
    const code = bias ? withBias! : withoutBias!;
    return { phases: [{ code, tiles: x.length / dim, args: layerNormBlock.encode({ ...places, dim, eps }) }] };
  },
});
