/** Logits that are none: a file may make a method give anything. */
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidFileError } from "../errors.ts";
import { loadProgramObject } from "./language-model.ts";
import { logitsOf } from "./logits.ts";

const folder = await temporaryFolder();
await writeTinyCheckpoint(folder);

describe("logits of a method", () => {
  const expected = { file: "m.pte", method: "forward", vocabularySize: 3, rows: 2 };

  it("are the values where type and number are right", () => {
    const data = Float32Array.of(1, 2, 3, 4, 5, 6);
    expect(logitsOf({ dtype: "f32", shape: [1, 2, 3], data }, expected)).toBe(data);
    expect(logitsOf({ dtype: "f32", shape: [1, 2, 3], data }, { ...expected, rows: null })).toBe(data);
  });

  it.each([
    [undefined, 2, "nothing"],
    [{ dtype: "i64", shape: [1, 2, 3], data: new BigInt64Array(6) }, 2, "i64 [1,2,3]"],
    [{ dtype: "f32", shape: [1, 1, 3], data: new Float32Array(3) }, 2, "f32 [1,1,3]"],
    [{ dtype: "f32", shape: [1, 3, 3], data: new Float32Array(9) }, 2, "f32 [1,3,3]"],
    [{ dtype: "f32", shape: [1, 4], data: new Float32Array(4) }, null, "f32 [1,4]"],
    [{ dtype: "f32", shape: [0, 3], data: new Float32Array(0) }, null, "f32 [0,3]"],
  ] as const)("%o for %s rows is an error of the file", (tensor, rows, found) => {
    const message = `method forward: expected logits f32 [.., ${rows ?? "rows"}, 3] but found ${found}`;
    expect(() => logitsOf(tensor, { ...expected, rows })).toThrow(new InvalidFileError("m.pte", message));
  });

  it.each([0, 1, 2])("that are input %i are refused when sequences run", async (input) => {
    const model = await loadCheckpoint(folder);
    const program = compileModel(model);
    const methods = program.methods.map((method) =>
      method.name === "forward" ? { ...method, outputs: [method.inputs[input]!] } : method,
    );
    const run = async () => {
      const llm = await loadProgramObject({ ...program, methods }, "odd.pte");
      try {
        return await llm.createDecoder().prefill([1, 2, 3]);
      } finally {
        await llm.dispose();
      }
    };
    await expect(run()).rejects.toThrow(InvalidFileError);
    await model.close();
  });
});
