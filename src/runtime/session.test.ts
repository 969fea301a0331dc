/** What a session takes of metadata, and how it names the file. */
import { describe, expect, it } from "vitest";
import { ProgramEditor } from "../../test/support/program-editor.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import { InvalidFileError } from "../errors.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../registry/operators.ts";
import { LoadedProgram } from "./program.ts";

const LONGEST = 16;

const doubled: MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, LONGEST] }, smallest: [1, 1] }],
  build: (builder, [x]) => [new Ops(builder).call("aten::mul.Scalar_out", x!, 2)],
};

const program = (metadata: ReadonlyMap<string, number> = new Map()) =>
  compile([doubled], { registry: operators, cpu: scalarCpu, metadata });

describe("a session", () => {
  it.each([1e-7, 1e-300, 0, 0.5, -5, Number.NaN, 2 ** 62, 1.5, Number.POSITIVE_INFINITY])(
    "refuses %d as metadata that counts something",
    async (value) => {
      const counted = await LoadedProgram.load(program(new Map([["get_max_seq_len", 5]])), { cpu: scalarCpu });
      expect(counted.count("get_max_seq_len")).toBe(5);
      const methods = program(new Map([["get_max_seq_len", 5]])).methods.map((method) =>
        method.name === "get_max_seq_len" ? { ...method, values: [{ kind: "double", value } as const] } : method,
      );
      const loaded = await LoadedProgram.load({ ...program(), file: "odd.pte", methods }, { cpu: scalarCpu });
      expect(() => loaded.count("get_max_seq_len")).toThrow(InvalidFileError);
      expect(() => loaded.count("get_max_seq_len", 7)).toThrow(
        `odd.pte: metadata method get_max_seq_len: expected a whole number from 1 to 2147483647 but found ${value}`,
      );
    },
  );

  it("names the file in errors of what it says, and in those of what it is given", async () => {
    const editor = new ProgramEditor(program());
    const [x, y] = [editor.tensor("f32", [4]), editor.tensor("f32", [5])];
    editor.first(editor.call("aten::clone.out", y, editor.none(), x, x));
    const loaded = await LoadedProgram.load({ ...editor.program, file: "odd.pte" }, { cpu: scalarCpu });
    const run = (length: number) =>
      loaded.createSession().run("forward", [{ dtype: "f32", shape: [1, length], data: new Float32Array(length) }]);
    await expect(run(1)).rejects.toThrow(/^odd\.pte: aten::clone\.out: gives f32 \[5\], which does not fit/);
    await expect(run(LONGEST + 1)).rejects.toThrow(/^odd\.pte: method forward, input 0: expected sizes/);
  });
});
