/** A small honest program, and programs that are changes of it. */
import { compile } from "../../src/compile/compile.ts";
import { scalarCpu } from "../../src/kernels/cpu.ts";
import { Ops } from "../../src/ops/ops.ts";
import { operators } from "../../src/ops/registry.ts";
import type { Program } from "../../src/program/program.ts";
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

/** `expected`: the error, or null where the program runs. */
export interface HostileProgram {
  readonly name: string;
  readonly expected: RegExp | null;
  readonly program: Program;
}

/** A list of programs, and what adds to it. */
export function collector() {
  const found: HostileProgram[] = [];
  const add = (name: string, expected: RegExp | null, change: (editor: ProgramEditor) => void): void => {
    const editor = new ProgramEditor(honestProgram());
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
