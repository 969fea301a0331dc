/**
 * Reads BitNet's packed matrices as transformers writes them: bytes [n / 4, k] hold four rows each, the first quarter of the
 * rows in the lowest bits; codes 0 to 2 mean -1 to 1. `weight_scale` divides in the class "bitlinear" and multiplies in
 * "autobitlinear".
 */
import { dequantize, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { floatTypes, type QuantizedFiles, type QuantizedFormat } from "./files.ts";
import { readDivisor, readScales, unknownName } from "./scales.ts";

export const bitNet: QuantizedFormat = {
  name: "BitNet",
  methods: ["bitnet"],
  // "online" checkpoints have float weights, which become ternary when used: checkpoint/stored/bitnet.ts.
  hasFloats: ({ quantization_mode: mode }) => mode === "online",
  async read(files) {
    const layer = files.text("linear_class") ?? "bitlinear";
    if (layer !== "bitlinear" && layer !== "autobitlinear")
      throw unknownName(files, "linear_class", ["bitlinear", "autobitlinear"], layer);
    const mode = files.text("quantization_mode") ?? "offline";
    if (mode !== "offline" && mode !== "online")
      throw unknownName(files, "quantization_mode", ["offline", "online"], mode);
    return files
      .modules("weight")
      .filter((module) => files.tensors.info(`${module}.weight`).dtype === "u8")
      .map((module) => packedTernary(files, module, layer === "bitlinear"));
  },
};

function packedTernary(files: QuantizedFiles, module: string, divides: boolean): ComputedMatrix {
  const [name, scale] = [`${module}.weight`, `${module}.weight_scale`] as const;
  const [quarter = 0, k = 0] = files.info(name, ["u8"], 2).shape;
  files.expect(scale, floatTypes, [1], []);
  const n = 4 * quarter;
  const spec: WeightSpec = { bits: 2, n, k, groupSize: k, hasZeros: false, hasLevels: false, scaleDType: "f32" };
  const read = async (first: number, count: number): Promise<QuantizedWeights> => {
    const factor = divides ? 1 / (await readDivisor(files, scale)) : (await readScales(files, scale))[0]!;
    const bytes = (await files.readWhole(module, "weight", first + count === n)).data as Uint8Array;
    const qvals = new Int8Array(count * k);
    for (let row = 0, i = 0; row < count; row++) {
      const part = Math.floor((first + row) / quarter);
      const start = (first + row - part * quarter) * k;
      for (let c = 0; c < k; c++, i++) qvals[i] = ((bytes[start + c]! >> (2 * part)) & 3) - 1;
    }
    const bad = qvals.findIndex((value) => value > 1);
    if (bad >= 0) throw files.valueError(name, "values of -1, 0 and 1", `2 in row ${first + Math.floor(bad / k)}`);
    const scales = new Float32Array(count).fill(factor);
    return { ...spec, n: count, qvals, scales, zeros: null, levels: null };
  };
  return {
    ...{ name, shape: [n, k], stored: "BitNet ternary", parts: [name, scale] },
    lowBit: { stored: "BitNet ternary", spec, rows: read },
    rows: async (first, count) => dequantize(await read(first, count)),
  };
}
