/** AQLM weights as a weight format: one operator call with codes, codebooks and scales as constants. */
import {
  type Builder,
  type LazyConstant,
  type TypedArray,
  vectorConstant,
  type Weight,
  type WeightFormat,
  type WeightLowering,
} from "lowbit/extension";
import { type AqlmForm, type AqlmWeights, formCounts } from "./form.ts";
import { packCodes, packedByteLength } from "./layout.ts";
import { CODE_MATMAT, CODE2X8, is2x8 } from "./operators.ts";

/**
 * The weight format of AQLM: how many codebooks, of how many bits, over how long vectors, and how its floats are
 * stored.
 */
export interface AqlmFormat extends WeightFormat {
  /** Name of the kind. */
  readonly kind: "aqlm";
  /** Sizes of the matrix and of its codes. */
  readonly form: AqlmForm;
  /** Type that codebooks and scales are stored in. */
  readonly floats: { readonly vectors: "f16" | "f32"; readonly scales: "f16" | "f32" };
}

/** A weight matrix that is stored as AQLM's codes, codebooks and scales. */
export type AqlmWeight = Weight<AqlmFormat, AqlmWeights>;

/**
 * A weight of AQLM data that is loaded on demand, for `Model.replaceWeight` and weight storages. What is loaded is checked
 * when it is used: ShapeError for codes or floats that are not what `form` says.
 */
export function aqlmWeight(
  name: string,
  form: AqlmForm,
  floats: AqlmFormat["floats"],
  load: () => Promise<AqlmWeights>,
): AqlmWeight {
  return { name, shape: [form.n, form.k], format: { kind: "aqlm", form, floats }, load };
}

export const aqlmLowering: WeightLowering = {
  kind: "aqlm",
  linear<T>(builder: Builder<T>, x: T, weight: Weight, bias: Weight | null): T {
    const { name, format, load } = weight as AqlmWeight;
    const { form, floats } = format;
    const { outputs, entries } = formCounts(form);
    const part = (
      suffix: string,
      spec: Pick<LazyConstant, "dtype" | "shape">,
      of: (data: AqlmWeights) => TypedArray,
    ): T => builder.constant({ key: `${name}:${suffix}`, ...spec, read: async () => of(await load()) });
    const codes = part("codes", { dtype: "u8", shape: [packedByteLength(form)] }, (data) =>
      packCodes(data, `${name}:codes`),
    );
    const sizes = [form.codebooks, entries, form.outGroup, form.inGroup];
    const vectors = part("codebooks", { dtype: floats.vectors, shape: sizes }, (data) => data.vectors);
    const scales = part("scales", { dtype: floats.scales, shape: [outputs, 1, 1, 1] }, (data) => data.scales);
    const operator = is2x8(form) ? CODE2X8 : CODE_MATMAT;
    return builder.call(`${operator}.out`, x, codes, vectors, scales, bias ? vectorConstant(builder, bias) : null);
  },
};
