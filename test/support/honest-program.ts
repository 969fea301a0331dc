/** A small honest program, and programs that are changes of it. */
import { compile } from "../../src/compile/compile.ts";
import { scalarCpu } from "../../src/kernels/cpu.ts";
import { Ops } from "../../src/ops/ops.ts";
import type { Program } from "../../src/program/program.ts";
import { operators } from "../../src/registry/operators.ts";
import { ProgramEditor } from "./program-editor.ts";

export const WIDTH = 64;
export const CAPACITY = 128;

/** One layer of attention over a cache, after a norm. Inputs x [1, 2, 64] and the position. */
export function honestProgram(): Program {
  return compile(
    [
      {
        name: "forward",
        inputs: [
          { name: "x", spec: { dtype: "f32", shape: [1, 2, WIDTH] }, smallest: [1, 2, WIDTH] },
          { name: "position", spec: { dtype: "i64", shape: [1] }, smallest: [1] },
        ],
        build(builder, [x, position]) {
          const ops = new Ops(builder);
          const weight = ops.literal("weight", new Float32Array(WIDTH).fill(1));
          const normed = ops.call("lowbit::rms_norm.out", x!, weight, 1e-5);
          const cache = { dtype: "f32", shape: [1, CAPACITY, 1, WIDTH] } as const;
          const [keyCache, valueCache] = [ops.state("keys", cache), ops.state("values", cache)];
          return [
            ops.attention(normed, normed, normed, { cache: { keyCache, valueCache, position: position! }, scale: 1 }),
          ];
        },
      },
    ],
    { registry: operators, cpu: scalarCpu },
  );
}

/** A recurrent layer and attention over the sequences of a step, with the same inputs. */
export function sequencesProgram(): Program {
  const load = async () => ({ dtype: "f32" as const, shape: [WIDTH, 1, 3], data: new Float32Array(3 * WIDTH).fill(1) });
  const taps = { name: "taps", shape: [WIDTH, 1, 3], format: { kind: "float", dtype: "f32" }, load } as const;
  return compile(
    [
      {
        name: "forward",
        inputs: [
          { name: "x", spec: { dtype: "f32", shape: [1, 2, WIDTH] }, smallest: [1, 2, WIDTH] },
          { name: "position", spec: { dtype: "i64", shape: [1] }, smallest: [1] },
        ],
        build(builder, [x]) {
          const ops = new Ops(builder);
          const mixed = ops.shortConvolution(x!, taps, null, { state: 0 });
          return [ops.attention(mixed, mixed, mixed, { cache: { layer: 0, kvHeads: 2, headDim: 32 }, scale: 1 })];
        },
      },
    ],
    {
      ...{ registry: operators, cpu: scalarCpu },
      metadata: new Map([
        ["get_max_seq_len", 2],
        ["get_max_context_len", CAPACITY],
      ]),
    },
  );
}

/** `expected`: the error, or null where the program runs. */
export interface HostileProgram {
  readonly name: string;
  readonly expected: RegExp | null;
  readonly program: Program;
}

/** A list of programs, and what adds to it. */
export function collector(base = honestProgram) {
  const found: HostileProgram[] = [];
  const add = (name: string, expected: RegExp | null, change: (editor: ProgramEditor) => void): void => {
    const editor = new ProgramEditor(base());
    change(editor);
    found.push({ name, expected, program: editor.program });
  };
  /** The same in a method that runs call by call, and in one that is made ready as a whole. */
  const addBoth: typeof add = (name, expected, change) => {
    add(name, expected, change);
    add(`${name}, call by call`, expected, (editor) => {
      change(editor);
      editor.first(editor.freeNothing());
    });
  };
  return { found, add, addBoth };
}
