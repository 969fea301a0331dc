/** Rotary position embedding. */
import { rope, ropeAngles } from "../kernels/families/index.ts";
import { isSameShape } from "../tensor.ts";
import { rowCount } from "./linear.ts";
import { defineOperator } from "./operator.ts";

/**
 * out [T, 2, half] = RoPE's cosines and sines for tokens [1, T] at positions input_pos [T] or [1, T], or from one position
 * [1] on.
 */
export const ropeAnglesOperator = defineOperator({
  schema:
    "lowbit::rope_angles.out(Tensor tokens, Tensor input_pos, Tensor inverse_frequencies, float scale, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: ropeAngles,
  shape(args) {
    const tokens = args.tensor("tokens").shape;
    const positions = args.tensor("input_pos", "i64").shape;
    const frequencies = args.tensor("inverse_frequencies", "f32").shape;
    if (tokens.length === 0) args.fail("tokens", "expected shape [1, T] but found a scalar");
    const each = [[tokens.at(-1)!], [1, tokens.at(-1)!]];
    if (!isSameShape(positions, [1]) && !each.some((shape) => isSameShape(positions, shape)))
      args.fail("input_pos", `expected shape [1] or [${tokens.at(-1)}] but found [${positions}]`);
    if (frequencies.length !== 1)
      args.fail("inverse_frequencies", `expected a vector but found shape [${frequencies}]`);
    return { dtype: "f32", shape: [tokens.at(-1)!, 2, frequencies[0]!] };
  },
  prepare: (args) => ({
    tokens: args.tensor("tokens").shape.at(-1)!,
    position: args.tensor("input_pos").data as BigInt64Array,
    inverseFrequencies: args.tensor("inverse_frequencies").data as Float32Array,
    scale: args.number("scale"),
    angles: args.tensor("out").data as Float32Array,
  }),
});

/**
 * Rotary position embedding (RoPE, Su et al. 2021) of x [1, T, heads * head_dim], in Hugging Face's convention of halves.
 */
export const ropeOperator = defineOperator({
  schema: "lowbit::rope.out(Tensor x, Tensor angles, int head_dim, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: rope,
  inPlace: ["x"],
  shape(args) {
    const x = args.tensor("x", "f32");
    const angles = args.tensor("angles", "f32");
    const headDim = args.integer("head_dim", 1);
    if (x.shape.length < 2 || x.shape.at(-1)! % headDim !== 0)
      args.fail("x", `expected shape [1, T, a multiple of ${headDim}] but found [${x.shape}]`);
    const [tokens, two, half] = angles.shape;
    if (angles.shape.length !== 3 || tokens !== rowCount(x.shape) || two !== 2 || 2 * half! > headDim)
      args.fail(
        "angles",
        `expected shape [${rowCount(x.shape)}, 2, at most ${headDim / 2}] but found [${angles.shape}]`,
      );
    return { dtype: "f32", shape: x.shape };
  },
  prepare(args) {
    const x = args.tensor("x");
    const headDim = args.number("head_dim");
    return {
      tokens: rowCount(x.shape),
      heads: x.shape.at(-1)! / headDim,
      headDim,
      half: args.tensor("angles").shape[2]!,
      x: x.data as Float32Array,
      angles: args.tensor("angles").data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});
