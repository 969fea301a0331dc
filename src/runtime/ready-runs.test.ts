/** One session at many sizes in turn, against calls that are resolved for each size by itself. */
import { describe, expect, it } from "vitest";
import { packed, vector } from "../../test/support/graph.ts";
import { Random } from "../../test/support/random.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import type { Cpu, Kernel } from "../kernels/contract.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { hasNative } from "../kernels/native/rows.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";
import { defineOperator } from "../ops/operator.ts";
import { OperatorRegistry } from "../ops/operator-registry.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../registry/operators.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { Profile } from "./calls/profile.ts";
import { readyMethod } from "./method.ts";
import { LoadedProgram } from "./program.ts";
import { RunList } from "./run-list.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus = [scalarCpu, ...(wasmCpu.features.size > 0 ? [wasmCpu] : []), ...(hasNative() ? [hostCpu()] : [])];

const [ROWS, OTHERS, K] = [40, 20, 64];

type Inputs = MethodSource["inputs"];
const rows = (name: string, most: number) =>
  ({ name, spec: { dtype: "f32", shape: [1, most, K] }, smallest: [1, 1, K] }) as const satisfies Inputs[number];

/** Two numbers of rows: a linear layer, its gate and the last row of one; a norm and a product of the other. */
const layers: MethodSource = {
  name: "forward",
  inputs: [rows("x", ROWS), rows("z", OTHERS)],
  build(builder, [x, z]) {
    const ops = new Ops(builder);
    const normed = ops.call("lowbit::rms_norm.out", x!, builder.constant(vector("norm", Array(K).fill(1.5))), 1e-5);
    const weights = builder.constant(packed("gate_up", 96, K));
    const whole = ops.call("torchao::_linear_8bit_act_4bit_weight.out", normed, weights, 32, 96, K);
    const gated = ops.call("lowbit::gate_halves.out", whole, "silu");
    const last = ops.call("aten::slice_copy.Tensor_out", x!, 1, -1, null, 1);
    const other = ops.call("torchao::_linear_8bit_act_4bit_weight.out", z!, weights, 32, 96, K);
    return [gated, last, ops.call("aten::mul.Scalar_out", other, 3)];
  },
};

/** Rows up to the fifth only: as many as there are for fewer, five for more. */
const clamped: MethodSource = {
  name: "forward",
  inputs: [rows("x", ROWS)],
  build(builder, [x]) {
    const ops = new Ops(builder);
    return [ops.call("aten::mul.Scalar_out", ops.call("aten::slice_copy.Tensor_out", x!, 1, 0, 5, 1), 2)];
  },
};

const input = (count: number, seed: number): Tensor => ({
  dtype: "f32",
  shape: [1, count, K],
  data: new Random(seed).floats(count * K, 2),
});

const valuesOf = (outputs: readonly Tensor[]) => outputs.map(({ shape, data }) => ({ shape, values: [...data] }));

/** What calls give that are resolved for these sizes alone. */
async function alone(program: LoadedProgram, inputs: readonly Tensor[]) {
  const method = program.method("forward");
  const memory = {
    scratch: program.scratchOf(method),
    state: program.memory.allocate(0),
    sequences: null,
    constants: program.constants,
  };
  const sizes = inputs.map(({ shape }) => shape);
  const ready = readyMethod(program.callsOf(method), sizes, memory, program);
  for (const [i, { data }] of ready.inputs.entries()) (data as Float32Array).set(inputs[i]!.data as Float32Array);
  const list = new RunList(ready.calls, program);
  await list.run(undefined);
  list.release();
  return valuesOf(ready.outputs);
}

/** Sizes in an order that goes up, down and back, with equal ones, 1 and the largest among them. */
function someSizes(count: number): [number, number][] {
  const random = new Random(7);
  const pick = (most: number) => 1 + (Math.floor(most * Math.abs(random.floats(1, 1)[0]!)) % most);
  const picked = Array.from({ length: count }, (): [number, number] => [pick(ROWS), pick(OTHERS)]);
  const alike = [2, 3, 8, 19, 1, 20].map((size): [number, number] => [size, size]);
  return [...alike, ...picked, [ROWS, OTHERS], [1, OTHERS], [ROWS, 1], [7, 1], [1, 7], [2, 2], [39, 19]];
}

describe.each(cpus.map((cpu) => [cpu.name.length > 30 ? "native" : cpu.name, cpu] as const))("on %s", (_, cpu) => {
  it.each([1, 2])("gives at every size what calls of that size alone give, %i threads", async (threads) => {
    const program = await LoadedProgram.load(compile([layers], { registry: operators, cpu }), { cpu, threads });
    const session = program.createSession();
    for (const [i, [t, r]] of someSizes(30).entries()) {
      const inputs = [input(t, i), input(r, 100 + i)];
      const found = valuesOf(await session.run("forward", inputs));
      expect(found, `${t} and ${r} rows`).toEqual(await alone(program, inputs));
    }
    await program.dispose();
  });

  it("resolves sizes one by one where calls do not grow evenly with them", async () => {
    const program = await LoadedProgram.load(compile([clamped], { registry: operators, cpu }), { cpu });
    const session = program.createSession();
    for (const t of [9, 2, 4, 5, 6, 3, 38, 1, ROWS]) {
      const x = input(t, t);
      const [y] = await session.run("forward", [x]);
      expect(y!.shape).toEqual([1, Math.min(t, 5), K]);
      expect([...y!.data]).toEqual([...x.data.subarray(0, K * Math.min(t, 5))].map((value) => 2 * (value as number)));
    }
    await program.dispose();
  });

  it("tells a profile of each size", async () => {
    const profile = new Profile();
    const program = await LoadedProgram.load(compile([layers], { registry: operators, cpu }), { cpu, profile });
    const session = program.createSession();
    for (const t of [9, 12, 9]) await session.run("forward", [input(t, 1), input(1, 2)]);
    const gates = profile.entries().filter(({ operator }) => operator === "lowbit::gate_halves.out");
    expect(gates.map(({ shapes, calls }) => `${shapes}: ${calls}`).sort()).toEqual([
      "1x12x96 → 1x12x48: 1",
      "1x9x96 → 1x9x48: 2",
    ]);
    await program.dispose();
  });
});

const plain = { target: "reference", layouts: null, bits: null, needs: [], nStep: 1 } as const;

interface CopyArgs {
  readonly x: Float32Array;
  readonly y: Float32Array;
}

/** Kernels of the test's own: `y[i] = factor`, with what scratch they ask for. */
function constantKernel(factor: number, mStep: number, scratchBytes = (_: number) => 0): Kernel<CopyArgs> {
  return {
    ...plain,
    name: `constant_f32_${mStep}x1x1_reference`,
    mStep,
    scratchBytes: ({ x }) => scratchBytes(x.length / K),
    bind({ x, y }, scratch) {
      if (scratch.length < scratchBytes(x.length / K)) throw new Error("too little scratch");
      return () => void y.fill(factor);
    },
  };
}

async function withKernels(kernels: readonly Kernel<CopyArgs>[]) {
  let resolved = 0;
  const constant = defineOperator<CopyArgs>({
    schema: "my::constant.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    kernels,
    shape(args) {
      resolved++;
      return args.tensor("x", "f32");
    },
    query: (args) => ({ layout: null, bits: null, m: elementCount(args.tensor("x").shape) / K }),
    prepare: (args) => ({
      x: args.tensor("x").data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    }),
  });
  const registry = new OperatorRegistry([constant]);
  const source: MethodSource = {
    name: "forward",
    inputs: [rows("x", ROWS)],
    build: (builder, [x]) => [builder.call("my::constant.out", x!)],
  };
  const program = await LoadedProgram.load(compile([source], { registry, cpu: scalarCpu }), {
    registry,
    cpu: scalarCpu,
  });
  const session = program.createSession();
  const run = async (t: number) => {
    const [y] = await session.run("forward", [input(t, t)]);
    expect(y!.shape).toEqual([1, t, K]);
    return new Set(y!.data as Float32Array);
  };
  return { run, resolved: () => resolved };
}

describe("sizes of one program", () => {
  it("are resolved by themselves once, and not again when they are new", async () => {
    const { run, resolved } = await withKernels([constantKernel(2, 1)]);
    for (const t of [9, 10, 1, ROWS]) await run(t);
    const before = resolved();
    for (let t = 1; t <= ROWS; t++) expect(await run(t)).toEqual(new Set([2]));
    expect(resolved()).toBe(before);
  });

  it("are served by the kernel that is chosen for each", async () => {
    const { run } = await withKernels([
      constantKernel(16, 16),
      constantKernel(6, 6),
      constantKernel(2, 2),
      constantKernel(1, 1),
    ]);
    for (const t of [9, 1, 30, 6, 5, 15, 16, 2, 3, 17, ROWS, 39, 7])
      expect(await run(t), `${t} rows`).toEqual(new Set([t >= 16 ? 16 : t >= 6 ? 6 : t >= 2 ? 2 : 1]));
  });

  it("have the scratch that their kernels ask for, also where fewer rows ask for more", async () => {
    const { run } = await withKernels([constantKernel(2, 1, (t) => (t === 11 ? 5000 : 100 * t)), constantKernel(1, 1)]);
    for (const t of [9, 3, 11, 12, 11, 38, 2]) expect(await run(t)).toEqual(new Set([2]));
  });
});
