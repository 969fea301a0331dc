/** Logits that are none: a file may make a method give anything. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeHybridCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import type { Target } from "../api/compile-options.ts";
import { loadProgramObject } from "../api/load-program-object.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { Method, Value } from "../program/program.ts";
import { hiddenOf, logitsOf } from "./logits.ts";

const folder = await temporaryFolder();
await writeTinyCheckpoint(folder);

/** Logits behind three tokens, by a program with a changed method `forward`. */
async function logitsWith(
  change: (forward: Method) => Partial<Method>,
  { target = "lowbit", path = folder }: { target?: Target; path?: string } = {},
) {
  const model = await loadCheckpoint(path);
  try {
    const program = compileModel(model, { target });
    const methods = program.methods.map((method) =>
      method.name === "forward" ? { ...method, ...change(method) } : method,
    );
    const llm = await loadProgramObject({ ...program, methods }, "odd.pte");
    try {
      return await llm.createDecoder().prefill([1, 2, 3]);
    } finally {
      await llm.dispose();
    }
  } finally {
    await model.close();
  }
}

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
    await expect(logitsWith((forward) => ({ outputs: [forward.inputs[input]!] }))).rejects.toThrow(InvalidFileError);
  });
});

/** Inputs are made here, as metadata say what a method takes: whatever of a method does not fit them, is the file's fault. */
describe.each(["lowbit", "executorch"] as const)("a method of a program for %s", (target) => {
  const shortened = (value: Value | undefined): Value => {
    if (value?.kind !== "tensor") throw new Error("expected a tensor");
    return { ...value, dynamism: "static", sizes: value.sizes.map(() => 1) };
  };
  it.each<[string, (forward: Method) => Partial<Method>, string]>([
    ["of another name", () => ({ name: "backward" }), "odd.pte: expected a method forward but found none"],
    [
      "with more inputs",
      ({ inputs }) => ({ inputs: [...inputs, inputs[0]!] }),
      `odd.pte: method forward: expected ${target === "lowbit" ? 4 : 3} inputs but found ${target === "lowbit" ? 3 : 2}`,
    ],
    [
      "with inputs of other sizes",
      ({ inputs, values }) => ({ values: values.with(inputs[0]!, shortened(values[inputs[0]!])) }),
      "odd.pte: method forward, input 0: expected sizes [1,1] but found [1,3]",
    ],
    [
      "with an input that is a number",
      ({ inputs, values }) => ({
        values: [...values, { kind: "int", value: 1 }],
        inputs: inputs.with(0, values.length),
      }),
      "odd.pte: method forward: input 0 is no tensor with memory of its own",
    ],
  ])("%s is refused with the file's name", async (_, change, message) => {
    const error = await logitsWith(change, { target }).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ message });
    expect(error).not.toBeInstanceOf(InvalidArgumentError);
  });
});

describe("hidden states of a method", () => {
  it("are as many numbers as were asked for, or an error of the file", async () => {
    const data = new Float32Array(8);
    const expected = { file: "m.pte", method: "forward", rows: 2 };
    expect(hiddenOf({ dtype: "f32", shape: [1, 2, 4], data }, 4, expected)).toBe(data);
    const message = "method forward: expected hidden states f32 [.., 2, 3] but found f32 [1,2,4]";
    expect(() => hiddenOf({ dtype: "f32", shape: [1, 2, 4], data }, 3, expected)).toThrow(
      new InvalidFileError("m.pte", message),
    );
    const path = join(await temporaryFolder(), "mtp");
    await writeHybridCheckpoint(path, "qwen3_5", { mtp_num_hidden_layers: 1 });
    for (const outputs of [
      (forward: Method) => [forward.outputs[0]!],
      (forward: Method) => [forward.outputs[0]!, forward.outputs[0]!],
    ])
      await expect(logitsWith((forward) => ({ outputs: outputs(forward) }), { path })).rejects.toThrow(
        /^odd.pte: method forward: expected hidden states/,
      );
  });
});
