import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { parseEmbedding, parseGroupSize, parseQmode } from "./qmode.ts";

describe("parseQmode", () => {
  it.each([
    ["8da4w", "int8DynamicActivationIntxWeight", 4, 16, "per_block"],
    ["8da2w", "int8DynamicActivationIntxWeight", 2, 16, "per_block"],
    ["8da6w", "int8DynamicActivationIntxWeight", 6, 32, "per_block"],
    ["torchao:8da4w", "int8DynamicActivationIntxWeight", 4, 32, "per_token"],
    ["8da1w", "int8DynamicActivationIntxWeight", 1, 32, "per_block"],
    ["8da8w", "int8DynamicActivationIntxWeight", 8, 32, "per_block"],
    ["wo3w", "intxWeightOnly", 3, 16],
    ["wo8w", "intxWeightOnly", 8, "axis"],
    ["4w", "intxWeightOnly", 4, 16],
    ["8w", "intxWeightOnly", 8, "axis"],
    ["int8", "intxWeightOnly", 8, "axis"],
  ])("%s", (qmode, kind, bits, groupSize, activationGranularity?) => {
    const mappingType = bits <= 4 && qmode !== "torchao:8da4w" ? "codebook" : "symmetric";
    const isTorchao = qmode.startsWith("torchao:");
    const algorithm = isTorchao ? "affine" : "mse";
    const scaleDType = isTorchao ? "f32" : groupSize === 16 ? "i8" : "f16";
    const config = parseQmode(qmode);
    expect(config).toMatchObject({ kind, bits, groupSize, mappingType, algorithm, scaleDType });
    expect(config.activationGranularity).toBe(activationGranularity);
  });

  it("is TorchAO's beside TorchAO's algorithms", () => {
    for (const algorithm of ["affine", "hqq_scale_only"] as const)
      expect(parseQmode("8da4w", { algorithm })).toMatchObject({
        algorithm,
        mappingType: "symmetric",
        scaleDType: "f32",
      });
    expect(parseQmode("8da4w", { algorithm: "gptq" })).toMatchObject({ mappingType: "codebook", scaleDType: "i8" });
    for (const qmode of ["wo4w", "8da4w"])
      expect(parseQmode(qmode, { algorithm: "affine" })).toMatchObject({ groupSize: 32, scaleDType: "f32" });
  });

  it("has groups of 32 with scales of 16 bits where one of the two is given, or zero points", () => {
    const plain = { groupSize: 32, scaleDType: "f16" } as const;
    for (const given of [{ groupSize: 32 }, { scaleDType: "f16" }, { mappingType: "asymmetric" }] as const)
      for (const qmode of ["wo4w", "8da4w"]) expect(parseQmode(qmode, given)).toMatchObject(plain);
    expect(parseQmode("8da4w", { scaleDType: "i8" }).groupSize).toBe(32);
    expect(parseQmode("8da4w", { mappingType: "kmeans" })).toMatchObject({ groupSize: 16, scaleDType: "i8" });
    expect(parseQmode("8da4w", { mappingType: "symmetric" })).toMatchObject(plain);
  });

  it("takes the other options", () => {
    const options = { groupSize: 64, mappingType: "asymmetric", scaleDType: "f32" } as const;
    for (const qmode of ["8da4w", "8w"]) expect(parseQmode(qmode, options)).toMatchObject(options);
    expect(parseQmode("8da4w", { algorithm: "hqq_scale_only" }).algorithm).toBe("hqq_scale_only");
    expect(parseQmode("int8", { groupSize: "axis" }).groupSize).toBe("axis");
  });

  it.each(["8da9w", "8da0w", "8da4w-gptq", "wo4", "5w", "torchao:fpa4w", "torchao:4w", "", "8DA4W"])(
    "refuses %j and lists what it knows",
    (qmode) => {
      expect(() => parseQmode(qmode)).toThrow(InvalidArgumentError);
      expect(() => parseQmode(qmode)).toThrow(/unknown qmode ".*"; known are 8da\{1\.\.8\}w, .*int8/);
    },
  );

  it("refuses groups for int8, and group size 0", () => {
    expect(() => parseQmode("int8", { groupSize: 32 })).toThrow(/one scale a row.* use qmode "8w"/);
    expect(() => parseQmode("8da4w", { groupSize: 0 })).toThrow(/"axis" for one scale a row, got 0/);
  });
});

describe("parseGroupSize", () => {
  it("reads sizes and axis", () => {
    expect(["1", "32", "axis", "per-axis"].map(parseGroupSize)).toEqual([1, 32, "axis", "axis"]);
  });

  it.each(["0", "-1", "1.5", "32x", "", "1e3", "99999999999999999999"])("refuses %j", (text) => {
    expect(() => parseGroupSize(text)).toThrow(InvalidArgumentError);
    expect(() => parseGroupSize(text)).toThrow(/or "axis" for one scale a row/);
  });
});

describe("parseEmbedding", () => {
  it("reads bits, groups and mapping", () => {
    const searched = { algorithm: "mse", scaleDType: "f16" };
    expect(parseEmbedding("4,32")).toEqual({ bits: 4, groupSize: 32, mappingType: "codebook", ...searched });
    expect(parseEmbedding("8, axis")).toEqual({ bits: 8, groupSize: "axis", mappingType: "symmetric", ...searched });
    const given = { algorithm: "affine", scaleDType: "f32" } as const;
    expect(parseEmbedding("8, 64, symmetric", given)).toEqual({
      bits: 8,
      groupSize: 64,
      mappingType: "symmetric",
      ...given,
    });
    expect(parseEmbedding("torchao:2,64,asymmetric")).toEqual({ bits: 2, groupSize: 64, mappingType: "asymmetric" });
  });

  it.each([
    ["4", /got 1 fields/],
    ["4,32,symmetric,1", /got 4 fields/],
    ["9,32", /<bits 1\.\.8>.*got bits "9"/],
    ["x,32", /got bits "x"/],
    ["4,0", /group size must be/],
    ["4,32,asym", /symmetric\|symmetric_no_clipping_err\|asymmetric\|codebook\|kmeans\], got mapping "asym"/],
    ["", /got 1 fields/],
  ])("refuses %j", (spec, message) => {
    expect(() => parseEmbedding(spec)).toThrow(InvalidArgumentError);
    expect(() => parseEmbedding(spec)).toThrow(message);
  });
});
