import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import type { Constant, Instruction, Method, Program, TensorValue, Value } from "./program.ts";
import { verifyProgram } from "./verify.ts";

const source = (byteLength: number) => ({ byteLength, read: async () => new Uint8Array(byteLength) });

const tensor = (changes: Partial<TensorValue>): TensorValue => ({
  kind: "tensor",
  dtype: "f32",
  sizes: [2, 3],
  dimOrder: [0, 1],
  dynamism: "static",
  constant: null,
  allocation: null,
  name: null,
  ...changes,
});

const planned = (offset: number, changes: Partial<TensorValue> = {}): TensorValue =>
  tensor({ allocation: { memoryId: 1, offset }, ...changes });

const method: Method = {
  name: "forward",
  values: [{ kind: "int", value: 1 }, tensor({ constant: 0 }), planned(8), { kind: "null" }],
  inputs: [0],
  outputs: [2],
  operators: [{ name: "aten::add", overload: "out" }],
  instructions: [],
  delegates: ["d"],
  memorySizes: [0, 32],
};
const constants: readonly Constant[] = [{ data: source(24), alignment: 16 }];

function verify(changes: Partial<Method>, programChanges: Partial<Program> = {}): void {
  const program = { methods: [{ ...method, ...changes }], constants, namedData: new Map(), ...programChanges };
  verifyProgram(program, (place, problem) => {
    throw new InvalidArgumentError(`${place}: ${problem}`);
  });
}

const withValue = (value: Value) => () => verify({ values: [...method.values, value] });
const withInstruction = (instruction: Instruction) => () => verify({ instructions: [instruction] });
const withConstant = (constant: Constant) => () => verify({}, { constants: [constant] });

describe("verifyProgram", () => {
  it("accepts what is right, up to the last byte and index", () => {
    verify({});
    withValue({ kind: "tensorList", items: [1, 2] })();
    withValue({ kind: "optionalTensorList", items: [-1, 2, 3] })();
    withValue({ kind: "intList", items: [0, 0] })();
    withValue({ kind: "int", value: 2 ** 63 })();
    withValue(planned(32, { sizes: [0], dimOrder: [0] }))();
    withValue(planned(32, { dynamism: "unbound" }))();
    withInstruction({ kind: "jumpFalse", condition: 0, destination: 1 })();
    withInstruction({ kind: "kernel", operator: 0, args: [3] })();
    withInstruction({ kind: "delegate", delegate: 0, args: [] })();
  });

  it.each<[string, () => void, RegExp]>([
    ["an input", () => verify({ inputs: [4] }), /forward, inputs: expected the index of one of 4 values but found 4/],
    ["an output", () => verify({ outputs: [-1] }), /forward, outputs: .* found -1/],
    ["a memory size", () => verify({ memorySizes: [0, 32, -1] }), /memory 2: expected a size in bytes but found -1/],
    ["an int", withValue({ kind: "int", value: 0.5 }), /value 4: expected an integer of 64 bits but found 0.5/],
    ["an int of 65 bits", withValue({ kind: "int", value: 2 ** 64 }), /integer of 64 bits/],
    [
      "an item",
      withValue({ kind: "intList", items: [9] }),
      /value 4: expected the index of one of 5 values but found 9/,
    ],
    ["an item's kind", withValue({ kind: "intList", items: [1] }), /of kind int but value 1 is of kind tensor/],
    ["a list of itself", withValue({ kind: "tensorList", items: [4] }), /one of 4 values but found 4/],
    ["a list of no tensors", withValue({ kind: "tensorList", items: [3] }), /kind tensor but value 3 is of kind null/],
    ["an optional item", withValue({ kind: "optionalTensorList", items: [-2] }), /found -2/],
    ["a size", withValue(tensor({ sizes: [2, -1] })), /sizes of 0 to 2147483647 but found -1/],
    ["a large size", withValue(tensor({ sizes: [2, 2 ** 31] })), /found 2147483648/],
    ["a rank", withValue(tensor({ sizes: new Array(17).fill(1) })), /has 17 dimensions, more than 16/],
    ["a short order", withValue(tensor({ dimOrder: [0] })), /order of 2 dimensions but found \[0\]/],
    ["an order", withValue(tensor({ dimOrder: [1, 1] })), /order of 2 dimensions but found \[1, 1\]/],
    ["a constant", withValue(tensor({ constant: 1, name: "w" })), /value 4 \(w\): .* one of 1 constants but found 1/],
    ["a short constant", withValue(tensor({ constant: 0, dtype: "f64" })), /f64 \[2, 3\] needs 48 bytes but .* has 24/],
    ["both places", withValue(planned(0, { constant: 0 })), /only one of them/],
    ["memory 0", withValue(tensor({ allocation: { memoryId: 0, offset: 0 } })), /a memory from 1 to 1 but found 0/],
    ["a memory", withValue(tensor({ allocation: { memoryId: 2, offset: 0 } })), /a memory from 1 to 1 but found 2/],
    ["a place", withValue(planned(12)), /lies at bytes 12 to 36 of memory 1, which has 32/],
    ["sizes beyond 2^53", withValue(planned(0, { sizes: [2 ** 30, 2 ** 30] })), /which has 32/],
    ["a place askew", withValue(planned(2)), /a multiple of 4 but found 2/],
    [
      "an operator",
      withInstruction({ kind: "kernel", operator: 1, args: [] }),
      /instruction 0: .* 1 operators but found 1/,
    ],
    ["an argument", withInstruction({ kind: "kernel", operator: 0, args: [4] }), /4 values but found 4/],
    ["a delegate", withInstruction({ kind: "delegate", delegate: 1, args: [] }), /1 delegates but found 1/],
    ["a delegate's argument", withInstruction({ kind: "delegate", delegate: 0, args: [7] }), /4 values but found 7/],
    ["a move", withInstruction({ kind: "move", from: 0, to: 5 }), /4 values but found 5/],
    ["a condition", withInstruction({ kind: "jumpFalse", condition: 6, destination: 0 }), /4 values but found 6/],
    ["a jump", withInstruction({ kind: "jumpFalse", condition: 0, destination: 2 }), /2 instructions but found 2/],
    ["a free", withInstruction({ kind: "free", value: 4 }), /4 values but found 4/],
    ["an alignment", withConstant({ data: source(24), alignment: 48 }), /constant 0: .* as alignment but found 48/],
    ["a small alignment", withConstant({ data: source(24), alignment: 8 }), /from 16 to 4096 as alignment but found 8/],
    ["a large alignment", withConstant({ data: source(24), alignment: 8192 }), /as alignment but found 8192/],
    ["a length", withConstant({ data: source(Number.NaN), alignment: 16 }), /constant 0: .* byte length but found NaN/],
    ["a name", () => verify({}, { methods: [method, method] }), /method forward: there are two of this name/],
  ])("refuses %s that is wrong", (_, run, message) => {
    expect(run).toThrow(message);
  });
});
