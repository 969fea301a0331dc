/** What AQLM's kernels in WebAssembly for codes of 8 bits share: constants that calls bring along, and the end of a sum. */
import {
  ArgumentBlock,
  type Body,
  type Expr,
  elementAt,
  f32,
  forRange,
  i32,
  int,
  type KernelCode,
  kernelFunction,
  type Local,
  memory,
  ptr,
  type Scope,
  size,
  type WasmPhase,
  when,
} from "lowbit/wasm";
import type { AqlmForm } from "./form.ts";
import { TILE } from "./layout.ts";

/** Vectors of a codebook. */
export const ENTRIES = 256;

/** In front of numbers that come with the arguments: where they go, and how many bytes. */
const constantBlock = new ArgumentBlock({ to: "ptr", bytes: "ptr" });
const CONSTANT_OFFSET = 16;

/** Copies the numbers behind its arguments: codebooks, scales and biases, which the program has in other types. */
const constantCode: KernelCode = {
  key: "aqlm_constants",
  build: () => [
    kernelFunction("aqlm_constants", constantBlock, ({ to, bytes }, { args }) => [
      memory.copy(to, ptr.add(args, size(CONSTANT_OFFSET)), bytes),
    ]),
  ],
};

/** Bytes of a float for each output of whole tiles. */
export const outputBytes = ({ n }: AqlmForm) => 4 * TILE * Math.ceil(n / TILE);

/** Codebooks as a kernel reads them, then scales and biases of outputs padded to tiles. */
export function constantsOf(
  form: AqlmForm,
  codebooks: Float32Array | Int16Array,
  scales: Float32Array,
  bias: Float32Array | null,
): Uint8Array {
  const outputs = outputBytes(form);
  const first = codebooks.byteLength;
  const bytes = new Uint8Array(first + 2 * outputs);
  bytes.set(new Uint8Array(codebooks.buffer, codebooks.byteOffset, first));
  const floats = new Float32Array(bytes.buffer, first);
  floats.set(scales);
  if (bias) floats.set(bias, outputs / 4);
  return bytes;
}

/** Puts constants into memory. */
export function constantPhase(to: number, constants: Uint8Array): WasmPhase {
  const args = new Uint8Array(CONSTANT_OFFSET + constants.length);
  args.set(constantBlock.encode({ to, bytes: constants.length }));
  args.set(constants, CONSTANT_OFFSET);
  return { code: constantCode, tiles: 1, args };
}

/** Where outputs go: scales and biases are [outputs padded to tiles], `rows` are those of y [rows, n]. */
export interface OutputFields {
  readonly scales: Local<"ptr">;
  readonly biases: Local<"ptr">;
  readonly y: Local<"ptr">;
  readonly n: Local<"i32">;
  readonly rows: Local<"i32">;
}

/** Writes a tile's outputs, from `sums` [64 outputs, width rows]: sums times scales, plus biases. */
export function writeOutputs(
  width: number,
  fields: OutputFields,
  tile: Expr<"i32">,
  sums: Local<"ptr">,
  scope: Scope,
): Body {
  const number = (name: string) => scope.local("i32", name);
  const [output, lane, row] = [number("output"), number("lane"), number("row")];
  const sum = f32.load(elementAt(sums, i32.add(i32.mul(lane, int(width)), row), 4));
  const scaled = f32.mul(sum, f32.load(elementAt(fields.scales, output, 4)));
  const result = f32.add(scaled, f32.load(elementAt(fields.biases, output, 4)));
  // Lane 2 i is output i, lane 2 i + 1 output 32 + i.
  const place = i32.add(i32.shr_u(lane, int(1)), i32.mul(i32.and(lane, int(1)), int(TILE / 2)));
  const target = elementAt(fields.y, i32.add(i32.mul(row, fields.n), output), 4);
  return forRange(lane, int(0), int(TILE), [
    output.set(i32.add(i32.mul(tile, int(TILE)), place)),
    when(i32.lt_u(output, fields.n), [forRange(row, int(0), fields.rows, [f32.store(target, result)])]),
  ]);
}
