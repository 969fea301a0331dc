/** A linear layer and its gate as one call: where one kernel serves both, and the results of either way. */
import { expect, it } from "vitest";
import { packed, vector } from "../../test/support/graph.ts";
import { Random } from "../../test/support/random.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import type { Cpu } from "../kernels/contract.ts";
import { cpuWith, hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { Ops } from "../ops/ops.ts";
import type { Program, TensorValue } from "../program/program.ts";
import { operators } from "../registry/operators.ts";
import { MethodCalls } from "./calls/method-calls.ts";
import { readyMethod } from "./method.ts";
import { LoadedProgram } from "./program.ts";

/** The most rows of a program, and columns. */
const [ROWS, K] = [130, 64];

interface Variant {
  /** What the gate reads is a result as well, or is read by another call. */
  readonly alsoUsed?: "as a result" | "by a call";
  readonly k?: number;
  readonly groupSize?: number;
}

/** gate_halves(linear(norm(x))) with weights [n, k]. */
function program(n: number, { alsoUsed, k = K, groupSize = 32 }: Variant = {}): Program {
  const source: MethodSource = {
    name: "forward",
    inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, ROWS, k] }, smallest: [1, 1, k] }],
    build(builder, [x]) {
      const ops = new Ops(builder);
      const normed = ops.call("lowbit::rms_norm.out", x!, builder.constant(vector("norm", Array(k).fill(1))), 1e-5);
      const weights = builder.constant(packed("gate_up", n, k, 4, groupSize));
      const whole = ops.call("torchao::_linear_8bit_act_4bit_weight.out", normed, weights, groupSize, n, k);
      const gated = ops.call("lowbit::gate_halves.out", whole, "silu");
      if (alsoUsed === "by a call") return [gated, ops.add(whole, whole)];
      return alsoUsed ? [gated, whole] : [gated];
    },
  };
  return compile([source], { registry: operators, cpu: scalarCpu });
}

/** Names of the kernels of a call of so many rows, in order. */
async function kernelsOf({ methods, constants }: Program, rows: number, cpu: Cpu): Promise<string[]> {
  const method = methods[0]!;
  const memory = {
    scratch: new Uint8Array(method.memorySizes[1]!),
    state: new Uint8Array(0),
    sequences: null,
    constants: await Promise.all(constants.map(({ data }) => data.read())),
  };
  const { sizes } = method.values[method.inputs[0]!] as TensorValue;
  const { calls, places } = readyMethod(new MethodCalls(method, operators), [[1, rows, sizes[2]!]], memory, {
    registry: operators,
    cpu,
  });
  expect(places).toHaveLength(calls.length);
  return calls.map(({ kernel }) => kernel.name);
}

it("runs both on one kernel where there is one for the CPU, the rows, the groups and the columns", async () => {
  const amx = cpuWith("sapphire-rapids");
  const fused = "linear_a8_swiglu_wx_32x32x64_amx_int8";
  expect(await kernelsOf(program(96), 40, amx)).toContain(fused);
  expect(await kernelsOf(program(96), 40, amx)).toHaveLength(2);
  expect(await kernelsOf(program(96), 31, amx)).toHaveLength(3);
  expect(await kernelsOf(program(80), 40, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96, { alsoUsed: "as a result" }), 40, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96, { alsoUsed: "by a call" }), 40, amx)).toHaveLength(4);
  expect(await kernelsOf(program(96, { groupSize: 64 }), 40, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96, { groupSize: 64 }), 128, amx)).toContain(fused);
  expect(await kernelsOf(program(96, { k: 512, groupSize: 256 }), 128, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96), 40, cpuWith("ice-lake"))).toHaveLength(3);
  expect(await kernelsOf(program(96), 40, scalarCpu)).toHaveLength(3);
});

it("keeps calls apart where a list has what the first makes", async () => {
  const fusible = program(96);
  const method = fusible.methods[0]!;
  const made = method.instructions.flatMap((step) => (step.kind === "kernel" ? [step.args.at(-1)!] : []))[1]!;
  const values = [...method.values, { kind: "tensorList" as const, items: [made] }];
  const listed = { ...fusible, methods: [{ ...method, values }] };
  expect(await kernelsOf(listed, 40, cpuWith("sapphire-rapids"))).toHaveLength(3);
});

const isHere = hostCpu().features.has("amx_int8");

it.skipIf(!isHere)(
  `gives what the calls give one by one${isHere ? "" : " (skipped: this CPU lacks amx_int8)"}`,
  async () => {
    const x = { dtype: "f32", shape: [1, ROWS, K], data: new Random(1).floats(ROWS * K, 2) } as const;
    const run = async (cpu: Cpu) => {
      const loaded = await LoadedProgram.load(program(96), { cpu });
      const [y] = await loaded.createSession().run("forward", [x]);
      return { names: [...loaded.activeKernels.keys()], values: [...(y!.data as Float32Array)] };
    };
    const [found, expected] = [await run(hostCpu()), await run(scalarCpu)];
    expect(found.names).toContain("lowbit::linear_8bit_act_swiglu.out");
    expect(expected.names).toContain("lowbit::gate_halves.out");
    const largest = Math.max(...expected.values.map(Math.abs));
    for (const [i, value] of found.values.entries())
      expect(Math.abs(value - expected.values[i]!)).toBeLessThan(1e-3 * largest);
  },
);
