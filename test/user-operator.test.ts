/** An operator that a user wrote in TypeScript: eager, captured, exported, loaded and run like those of the package. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  capture,
  compile,
  EagerBuilder,
  formatGraph,
  hostCpu,
  InvalidArgumentError,
  type Kernel,
  LoadedProgram,
  loadMethods,
  type MethodSource,
  type OperatorDefinition,
  OperatorRegistry,
  Ops,
  openFile,
  operators,
  readProgram,
  registerOperator,
  ShapeError,
  saveProgram,
  type Tensor,
  UnsupportedError,
} from "../src/index.ts";
import { temporaryFolder } from "./support/folders.ts";

interface ClampArgs {
  readonly x: Float32Array;
  readonly low: number;
  readonly high: number;
  readonly y: Float32Array;
}

const clampKernel: Kernel<ClampArgs> = {
  name: "soft_clamp_f32_1x1x1_reference",
  target: "reference",
  layouts: null,
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
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
