/**
 * The method "mxfp4" of transformers, as in gpt-oss: stacked experts, `<name>_blocks` [experts, n, k / 32, 16] with two e2m1
 * codes in a byte, and `<name>_scales` [experts, n, k / 32] of exponents. Each expert becomes a matrix:
 * "mlp.experts.gate_up_proj_blocks" gives "mlp.experts.0.gate_up_proj.weight".
 */
import type { ComputedMatrix } from "../computed-tensors.ts";
import type { QuantizedFiles, QuantizedFormat } from "./files.ts";
import { float4Matrix } from "./float4.ts";
import { float8Values } from "./small-floats.ts";

const BLOCKS = "_blocks";
const GROUP = 32;
/** Most experts of a stack: far above any model's. */
const EXPERTS_MAX = 1 << 16;

export const mxfp4: QuantizedFormat = {
  name: "MXFP4",
  methods: ["mxfp4"],
  read: async (files) =>
    files.tensors.names
      .filter((name) => name.endsWith(BLOCKS))
      .flatMap((name) => expertMatrices(files, name.slice(0, -BLOCKS.length))),
};

function expertMatrices(files: QuantizedFiles, stack: string): readonly ComputedMatrix[] {
  const [blocks, scales] = [`${stack}${BLOCKS}`, `${stack}_scales`] as const;
  const { shape } = files.info(blocks, ["u8"], 4);
  const [experts = 0, n = 0, groups = 0, bytes = 0] = shape;
  if (bytes !== GROUP / 2 || experts > EXPERTS_MAX || n * groups === 0)
    throw files.shapeError(blocks, `[experts, n, groups, ${GROUP / 2}]`, shape);
  files.expect(scales, ["u8"], [experts, n, groups]);
  const values = float8Values("F8_E8M0")!;
  const [, path = "", name = stack] = /^(.*\.)?([^.]+)$/.exec(stack) ?? [];
  /** Reads rows of one expert, whose bytes are contiguous. */
  const rowsOf = async (tensor: string, expert: number, first: number, count: number): Promise<Uint8Array> => {
    const { data } = await files.tensors.readRows(tensor, expert, 1);
    const width = data.length / n;
    return (data as Uint8Array).subarray(first * width, (first + count) * width);
  };
  return Array.from({ length: experts }, (_, expert) =>
    float4Matrix({
      ...{ name: `${path}${expert}.${name}.weight`, shape: [n, GROUP * groups], groupSize: GROUP, stored: "MXFP4" },
      parts: [blocks, scales],
      hasE4m3Scales: false,
      bytes: (first, count) => rowsOf(blocks, expert, first, count),
      async scales(first, count) {
        const codes = await rowsOf(scales, expert, first, count);
        const found = Float32Array.from(codes, (code) => values[code]!);
        if (found.some(Number.isNaN)) throw files.valueError(scales, "exponents below 255", 255);
        return found;
      },
    }),
  );
}
