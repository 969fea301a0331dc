import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import {
  type ConfigOptions,
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  makeConfig,
  sharedEmbedding,
} from "./config.ts";

describe("configurations", () => {
  it("have TorchAO's defaults, but for the scales, the groups of embeddings and activations in blocks", () => {
    const rest = { mappingType: "symmetric", algorithm: "affine" };
    expect(int8DynamicActivationIntxWeight()).toEqual({
      activationGranularity: "per_block",
      kind: "int8DynamicActivationIntxWeight",
      bits: 8,
      groupSize: 32,
      scaleDType: "f32",
      ...rest,
    });
    expect(intxWeightOnly()).toEqual({
      kind: "intxWeightOnly",
      bits: 8,
      groupSize: "axis",
      scaleDType: "f32",
      ...rest,
    });
    for (const make of [embedding, sharedEmbedding])
      expect(make()).toMatchObject({ bits: 4, groupSize: 32, mappingType: "asymmetric", kind: make.name });
  });

  it("are frozen, survive JSON, and take the default of an undefined field", () => {
    const config = int8DynamicActivationIntxWeight({ bits: 3, groupSize: "axis", mappingType: undefined });
    expect(Object.isFrozen(config)).toBe(true);
    expect(config).toMatchObject({ bits: 3, groupSize: "axis", mappingType: "symmetric" });
    const { kind, ...fields } = JSON.parse(JSON.stringify(config));
    expect(makeConfig(kind, fields)).toEqual(config);
  });

  it.each([
    [{ bits: 9 }, /embedding: bits must be a whole number from 1 to 8, got 9/],
    [{ bits: "4" }, /got "4"/],
    [{ groupSize: 0 }, /groupSize must be at least 1 and whole, or "axis"/],
    [{ groupSize: 1.5 }, /got 1.5/],
    [{ mappingType: "wide" }, /one of symmetric, symmetric_no_clipping_err, asymmetric, codebook, kmeans, got "wide"/],
    [{ algorithm: "hqq" }, /one of affine, hqq_scale_only, .*, got "hqq"/],
    [{ algorithm: "hqq_scale_only" }, /no zero points/],
    [{ scaleDType: "bf16" }, /one of f32, f16, i8, got "bf16"/],
    [{ group_size: 32 }, /unknown field "group_size"; known are bits, groupSize/],
    [{ kind: "intxWeightOnly" }, /unknown field "kind"/],
  ])("refuse %o", (options, message) => {
    const act = () => embedding(options as ConfigOptions);
    expect(act).toThrow(InvalidArgumentError);
    expect(act).toThrow(message);
  });
});
