/** Capture and emission, on small graphs. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../errors.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import type { Builder } from "../ops/builder.ts";
import { Ops } from "../ops/ops.ts";
import type { Method, Program, TensorValue, Value } from "../program/program.ts";
import { verifyProgram } from "../program/verify.ts";
import { operators } from "../registry/operators.ts";
import { capture, type InputSpec, type MethodSource } from "./capture.ts";
import { compile } from "./compile.ts";
import { formatGraph } from "./graph.ts";

const fixed = (name: string, ...shape: number[]): InputSpec => ({
  name,
  spec: { dtype: "f32", shape },
  smallest: shape,
});
const upTo = (name: string, ...shape: number[]): InputSpec => ({
  name,
  spec: { dtype: "f32", shape },
  smallest: shape.map(() => 1),
});

type Build = <T>(ops: Ops<T>, inputs: readonly T[], builder: Builder<T>) => readonly T[];

function method(name: string, inputs: readonly InputSpec[], build: Build): MethodSource {
  return { name, inputs, build: (builder, values) => build(new Ops(builder), values, builder) };
}

function compiled(...sources: MethodSource[]): Program {
  const program = compile(sources, { registry: operators, cpu: scalarCpu });
  verifyProgram(program, (place, problem) => expect.fail(`${place}: ${problem}`));
  return program;
}

const tensors = ({ values }: Method) => values.filter((value): value is TensorValue => value.kind === "tensor");
const kinds = ({ values }: Method, kind: Value["kind"]) => values.filter((value) => value.kind === kind);

const pos = { name: "pos", spec: { dtype: "i64", shape: [1] }, smallest: [1] } as const;

describe("capture", () => {
  it("records calls in order, with sizes at the largest and the smallest inputs", () => {
    const source = method("forward", [upTo("x", 1, 8), fixed("y", 4)], (ops, [x, y]) => {
      const doubled = ops.add(x!, x!);
      return [ops.call("aten::add.out", doubled, doubled, 3), ops.add(y!, y!)];
    });
    expect(formatGraph(capture(source, operators, scalarCpu))).toBe(
      [
        "forward(x: f32[1, <=8], y: f32[4])",
        "  %0: f32[1, <=8] = aten::add.out(x, x, 1)",
        "  %1: f32[1, <=8] = aten::add.out(%0, %0, 3)",
        "  %2: f32[4] = aten::add.out(y, y, 1)",
        "  return %1, %2",
      ].join("\n"),
    );
  });

  it("does not read constants", () => {
    const source = method("forward", [fixed("x", 3)], (ops, [x], builder) => {
      const read = () => expect.fail("was read");
      return [ops.add(x!, builder.constant({ key: "c", dtype: "f32", shape: [3], read }))];
    });
    expect(formatGraph(capture(source, operators, scalarCpu))).toContain("aten::add.out(x, c, 1)");
  });

  it("raises shape errors for the largest and for the smallest inputs", () => {
    const largest = method("forward", [fixed("x", 3), fixed("y", 4)], (ops, [x, y]) => [ops.add(x!, y!)]);
    expect(() => capture(largest, operators, scalarCpu)).toThrow(ShapeError);
    const smallest = method("forward", [upTo("x", 4), fixed("y", 4)], (ops, [x, y]) => [ops.gated("silu", x!, y!)]);
    expect(() => capture(smallest, operators, scalarCpu)).toThrow(/expected the shape of gate \[1\] but found \[4\]/);
  });

  it.each<[string, Partial<InputSpec>, RegExp]>([
    [
      "of no dtype",
      { spec: { dtype: "float32" as "f32", shape: [4] } },
      /input x: expected dtype f64, .* but found float32/,
    ],
    [
      "of another rank",
      { smallest: [1, 1] },
      /input x: expected smallest sizes from 1 to those of \[4\] but found \[1,1\]/,
    ],
    ["smallest above the largest", { smallest: [5] }, /but found \[5\]/],
    ["empty where a run's cannot be", { smallest: [0] }, /but found \[0\]/],
  ])("refuses inputs %s", (_, part, message) => {
    const source = method("forward", [{ ...upTo("x", 4), ...part }], (_ops, [x]) => [x!]);
    expect(() => capture(source, operators, scalarCpu)).toThrow(InvalidArgumentError);
    expect(() => capture(source, operators, scalarCpu)).toThrow(message);
  });

  it("takes inputs that are always empty", () => {
    const source = method("forward", [fixed("x", 0, 4)], (ops, [x]) => [ops.add(x!, x!)]);
    expect(formatGraph(capture(source, operators, scalarCpu))).toContain("f32[0, 4] = aten::add.out(x, x, 1)");
  });

  it.each<[string, unknown]>([
    ["a value alone", { dtype: "f32", shape: [1] }],
    ["nothing", undefined],
    ["no value", [undefined]],
    ["a tensor", [{ dtype: "f32", shape: [1], data: Float32Array.of(1) }]],
  ])("refuses %s as what a method builds", (_, built) => {
    const source = method("forward", [fixed("x", 1)], () => built as never);
    expect(() => capture(source, operators, scalarCpu)).toThrow(
      new InvalidArgumentError("method forward: expected a list of values of its builder as what it builds"),
    );
  });

  it("refuses another tensor of the name of a constant or a state, in one method or another", () => {
    const wide = fixed("x", 3);
    const uses: readonly [string, Build, Build][] = [
      [
        "constant c",
        (ops) => [ops.literal("c", Float32Array.of(1))],
        (ops) => [ops.literal("c", Float32Array.of(1, 2))],
      ],
      [
        "state s",
        (ops) => [ops.state("s", { dtype: "f32", shape: [1] })],
        (ops) => [ops.state("s", { dtype: "f32", shape: [2] })],
      ],
    ];
    for (const [what, one, two] of uses) {
      const message = `${what}: expected f32 [1], which it is already, but found f32 [2]`;
      const both = method("forward", [wide], (ops, inputs, builder) => [
        ...one(ops, inputs, builder),
        ...two(ops, inputs, builder),
      ]);
      expect(() => compiled(both)).toThrow(new InvalidArgumentError(message));
      expect(() => compiled(method("a", [wide], one), method("b", [wide], two))).toThrow(
        new InvalidArgumentError(message),
      );
    }
  });

  it("an unregistered operator is an UnsupportedError with its name", () => {
    const source = method("forward", [fixed("x", 3)], (ops, [x]) => [ops.call("my::missing.out", x!)]);
    expect(() => capture(source, operators, scalarCpu)).toThrow(UnsupportedError);
    expect(() => capture(source, operators, scalarCpu)).toThrow(/my::missing.out/);
  });
});

describe("emission", () => {
  it("lists the out value twice, as ExecuTorch's kernels take and return it", () => {
    const [forward] = compiled(method("forward", [fixed("x", 3)], (ops, [x]) => [ops.add(x!, x!)])).methods;
    const [instruction] = forward!.instructions;
    if (instruction?.kind !== "kernel") throw new Error("expected a kernel");
    const [self, other, alpha, out, returned] = instruction.args;
    expect([self, other]).toEqual([forward!.inputs[0], forward!.inputs[0]]);
    expect(forward!.values[alpha!]).toEqual({ kind: "int", value: 1 });
    expect([out, returned]).toEqual([forward!.outputs[0], forward!.outputs[0]]);
    expect(forward!.operators).toEqual([{ name: "aten::add", overload: "out" }]);
  });

  it("gives sizes that vary their largest value and a bound", () => {
    const [forward] = compiled(method("forward", [upTo("x", 1, 512)], (ops, [x]) => [ops.add(x!, x!)])).methods;
    for (const { dynamism, sizes, allocation } of tensors(forward!)) {
      expect([dynamism, sizes]).toEqual(["bound", [1, 512]]);
      expect(allocation!.memoryId).toBe(1);
    }
    expect(forward!.memorySizes).toEqual([0, 2 * 512 * 4, 0]);
  });

  it("writes equal literals once and different ones apart", () => {
    const alphas = [1, 1, 2, 0.5, 0.5, -0, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN];
    const [forward] = compiled(
      method("forward", [fixed("x", 3)], (ops, [x]) => [
        alphas.reduce<typeof x>((sum, alpha) => ops.call("aten::add.out", sum!, x!, alpha), x)!,
      ]),
    ).methods;
    const given = forward!.instructions.map((instruction) => {
      const value = forward!.values[instruction.kind === "kernel" ? instruction.args[2]! : -1]!;
      return value.kind === "int" || value.kind === "double" ? value.value : null;
    });
    expect(given).toEqual(alphas);
    expect(kinds(forward!, "int").length + kinds(forward!, "double").length).toBe(8);
  });

  it("writes whole numbers for float arguments as doubles", () => {
    const [forward] = compiled(
      method("forward", [fixed("x", 2, 4)], (ops, [x]) => [
        ops.call("lowbit::rms_norm.out", x!, ops.literal("w", Float32Array.of(1, 1, 1, 1)), 1),
      ]),
    ).methods;
    expect(kinds(forward!, "double")).toEqual([{ kind: "double", value: 1 }]);
    expect(kinds(forward!, "int")).toEqual([]);
  });

  it("returns an input, and one value twice, as they are", () => {
    const [forward] = compiled(method("forward", [fixed("x", 3)], (ops, [x]) => [x!, ops.add(x!, x!), x!])).methods;
    expect(forward!.outputs[0]).toBe(forward!.inputs[0]);
    expect(forward!.outputs[2]).toBe(forward!.inputs[0]);
  });
});

describe("methods of one program", () => {
  const cache = { dtype: "f32", shape: [1, 16, 1, 8] } as const;
  const step = (name: string, tokens: number) =>
    method(name, [fixed("x", 1, tokens, 8), pos], (ops, [x, position]) => {
      const weight = ops.literal("shared.weight", Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8));
      const normed = ops.call("lowbit::rms_norm.out", x!, weight, 1e-5);
      const [keyCache, valueCache] = [ops.state("keys", cache), ops.state("values", cache)];
      return [
        ops.attention(normed, normed, normed, { cache: { keyCache, valueCache, position: position! }, scale: 1 }),
      ];
    });
  const program = compiled(step("prefill", 4), step("decode", 1));

  it("share constants of one key", async () => {
    expect(program.constants).toHaveLength(1);
    const constant = tensors(program.methods[0]!).find(({ name }) => name === "shared.weight");
    expect(constant).toEqual(tensors(program.methods[1]!).find(({ name }) => name === "shared.weight"));
    expect(new Float32Array((await program.constants[0]!.data.read()).slice().buffer)[7]).toBe(8);
  });

  it("share state: a name has one place", () => {
    const places = program.methods.map((each) =>
      tensors(each)
        .filter(({ allocation }) => allocation?.memoryId === 2)
        .map(({ name, allocation }) => [name, allocation!.offset]),
    );
    expect(places[0]).toEqual([
      ["keys", 0],
      ["values", 512],
    ]);
    expect(places[1]).toEqual(places[0]);
    expect(program.methods.map(({ memorySizes }) => memorySizes[2])).toEqual([1024, 1024]);
  });
});

describe("metadata", () => {
  it("becomes methods that return constants", () => {
    const metadata = new Map<string, number | boolean | readonly number[]>([
      ["get_vocab_size", 512],
      ["use_kv_cache", true],
      ["get_eos_ids", [2, 3]],
      ["get_scale", 0.5],
    ]);
    const { methods } = compile([], { registry: operators, cpu: scalarCpu, metadata });
    expect(methods.map(({ name, values, inputs, outputs }) => [name, values, inputs, outputs])).toEqual([
      ["get_vocab_size", [{ kind: "int", value: 512 }], [], [0]],
      ["use_kv_cache", [{ kind: "bool", value: true }], [], [0]],
      [
        "get_eos_ids",
        [
          { kind: "int", value: 2 },
          { kind: "int", value: 3 },
        ],
        [],
        [0, 1],
      ],
      ["get_scale", [{ kind: "double", value: 0.5 }], [], [0]],
    ]);
  });
});
