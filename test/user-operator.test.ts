/** An operator that a user wrote in TypeScript: eager, captured, exported, loaded and run like those of the package. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  EagerBuilder,
  type Kernel,
  type OperatorDefinition,
  OperatorRegistry,
  Ops,
  operators,
  registerOperator,
} from "../src/extension/index.ts";
import {
  exportMethods,
  hostCpu,
  InvalidArgumentError,
  loadMethods,
  type MethodSource,
  openFile,
  readProgram,
  ShapeError,
  saveProgram,
  type Tensor,
  UnsupportedError,
} from "../src/index.ts";
import { capture, compile, formatGraph, LoadedProgram } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";

interface ClampArgs {
  readonly x: Float32Array;
  readonly low: number;
  readonly high: number;
  readonly y: Float32Array;
}

const plain = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;

const clampKernel: Kernel<ClampArgs> = {
  ...plain,
  name: "soft_clamp_f32_1x1x1_reference",
  bind:
    ({ x, low, high, y }) =>
    () => {
      for (let i = 0; i < x.length; i++) y[i] = Math.min(high, Math.max(low, x[i]!));
    },
};

const definition: OperatorDefinition<ClampArgs> = {
  schema: "my::soft_clamp.out(Tensor x, float low=-1, float high=1, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [clampKernel],
  shape(args) {
    if (args.number("low") > args.number("high"))
      args.fail("low", `expected at most high but found ${args.number("low")}`);
    return args.tensor("x", "f32");
  },
  prepare: (args) => ({
    x: args.tensor("x").data as Float32Array,
    low: args.number("low"),
    high: args.number("high"),
    y: args.tensor("out").data as Float32Array,
  }),
};

interface SumArgs {
  readonly x: Float32Array;
  readonly tensors: readonly Float32Array[];
  readonly literals: number;
  readonly y: Float32Array;
}

/** x + the first values of all other tensors + all literals, of strings their lengths. */
const everything: OperatorDefinition<SumArgs> = {
  schema:
    'my::everything.out(Tensor x, Tensor? bias, Tensor[] list, Tensor?[] holes, int[] dims, int[]? maybe, float? f, Scalar s, Scalar? s2, str how="abc", str? tag=None, bool flag=False, int[2] pair=1, *, Tensor(a!) out) -> Tensor(a!)',
  kernels: [
    {
      ...plain,
      name: "everything_f32_1x1x1_reference",
      bind:
        ({ x, tensors, literals, y }) =>
        () => {
          const sum = literals + tensors.reduce((total, values) => total + values[0]!, 0);
          for (let i = 0; i < x.length; i++) y[i] = x[i]! + sum;
        },
    },
  ],
  shape: (args) => args.tensor("x", "f32"),
  prepare(args) {
    const others = [args.optionalTensor("bias"), ...args.tensors("list"), ...args.tensors("holes")];
    const numbers = [
      ...[args.numbers("dims"), args.optionalNumbers("maybe") ?? [100], args.numbers("pair")].flat(),
      ...[args.optionalNumber("f") ?? 50, args.number("s"), args.optionalNumber("s2") ?? 0],
      ...[args.string("how").length, args.optionalString("tag")?.length ?? 0, Number(args.boolean("flag"))],
    ];
    return {
      x: args.tensor("x").data as Float32Array,
      tensors: others.flatMap((tensor) => (tensor ? [tensor.data as Float32Array] : [])),
      literals: numbers.reduce((total, number) => total + number, 0),
      y: args.tensor("out").data as Float32Array,
    };
  },
};

/** What programs know that were built without the user's operator. */
const withoutMine = new OperatorRegistry([...operators]);
registerOperator(definition);

/** clamp(x + x, -1, 2), then clamp to the defaults. */
const forward: MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, 4] }, smallest: [1, 1] }],
  build(builder, [x]) {
    const ops = new Ops(builder);
    const wide = ops.call("my::soft_clamp.out", ops.add(x!, x!), -1, 2);
    return [wide, ops.call("my::soft_clamp.out", wide)];
  },
};

const x: Tensor = { dtype: "f32", shape: [1, 4], data: Float32Array.of(-3, -0.25, 0.75, 3) };
const expected = [Float32Array.of(-1, -0.5, 1.5, 2), Float32Array.of(-1, -0.5, 1, 1)];
const folder = await temporaryFolder();

describe("an operator of the user's own", () => {
  it("runs eagerly", () => {
    const outputs = forward.build(new EagerBuilder(operators, hostCpu()), [x]);
    expect(outputs.map(({ data }) => data)).toEqual(expected);
  });

  it("is captured with its defaults", () => {
    expect(formatGraph(capture(forward, operators, hostCpu()))).toContain("= my::soft_clamp.out(%1, -1, 1)");
  });

  it("is exported, loaded and run", async () => {
    const path = join(folder, "mine.pte");
    await saveProgram(compile([forward], { registry: operators, cpu: hostCpu() }), path);
    const file = await openFile(path);
    const program = await LoadedProgram.load(await readProgram(file));
    const outputs = await program.createSession().run("forward", [x]);
    expect(outputs.map(({ data }) => data)).toEqual(expected);
    const shorter = await program
      .createSession()
      .run("forward", [{ ...x, shape: [1, 2], data: Float32Array.of(5, -5) }]);
    expect(shorter.map(({ data }) => data)).toEqual([Float32Array.of(2, -1), Float32Array.of(1, -1)]);
    expect([...program.activeKernels.get("my::soft_clamp.out")!]).toEqual([clampKernel.name]);

    await expect(LoadedProgram.load(await readProgram(file), { registry: withoutMine })).rejects.toThrow(
      UnsupportedError,
    );
    await expect(LoadedProgram.load(await readProgram(file), { registry: withoutMine })).rejects.toThrow(
      /method forward: unknown operators my::soft_clamp.out; register them with registerOperator/,
    );
    await file.close();
    await expect(loadMethods(path, { registry: withoutMine })).rejects.toThrow(
      `${path}: method forward: unknown operators`,
    );
  });

  it("has arguments of every kind, each of which a program keeps", async () => {
    registerOperator(everything);
    const method: MethodSource = {
      ...forward,
      build(builder, [value]) {
        const ops = new Ops(builder);
        const [first, other] = [ops.add(value!, value!), ops.call("my::soft_clamp.out", value!, -2, 2)];
        return [
          ops.call("my::everything.out", value!, other, [first, other], [null, first, null], [7, 8], [], 3, true, null),
          ops.call("my::everything.out", value!, null, [], [], [], null, null, 2.5, 4, "é", "t", true),
        ];
      },
    };
    const eager = method.build(new EagerBuilder(operators, hostCpu()), [x]);
    const tensors = -2 + (-6 - 2) - 6;
    const sums = [tensors + 7 + 8 + 0 + 3 + 1 + 0 + 3 + 0 + 0 + 2, 0 + 100 + 50 + 2.5 + 4 + 1 + 1 + 1 + 2];
    const wanted = sums.map((sum) => Float32Array.of(-3 + sum, -0.25 + sum, 0.75 + sum, 3 + sum));
    expect(eager.map(({ data }) => data)).toEqual(wanted);
    const path = join(folder, "everything.pte");
    await exportMethods([method], path);
    const program = await loadMethods(path);
    const outputs = await program.createSession().run("forward", [x]);
    expect(outputs.map(({ data }) => data)).toEqual(wanted);
    await program.dispose();
    const file = await openFile(path);
    const kinds = (await readProgram(file)).methods
      .find(({ name }) => name === "forward")!
      .values.map(({ kind }) => kind);
    for (const kind of ["tensorList", "optionalTensorList", "intList", "string", "bool", "double", "null"])
      expect(kinds).toContain(kind);
    await file.close();
  });

  it("raises its own shape errors when it is captured", () => {
    const wrong: MethodSource = {
      ...forward,
      build: (builder, [value]) => [new Ops(builder).call("my::soft_clamp.out", value!, 2, 1)],
    };
    expect(() => capture(wrong, operators, hostCpu())).toThrow(
      new ShapeError("my::soft_clamp.out, argument low: expected at most high but found 2"),
    );
  });

  it("cannot take a name that is taken", () => {
    expect(() => registerOperator(definition)).toThrow(InvalidArgumentError);
    expect(() =>
      registerOperator({ ...definition, schema: definition.schema.replace("my::soft_clamp", "aten::add") }),
    ).toThrow(/operator aten::add.out is registered already/);
  });
});
