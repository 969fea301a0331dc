/** A linear layer and its gate as one call: where one kernel serves both, and the results of either way. */
import { expect, it } from "vitest";
import { packed, vector } from "../../test/support/graph.ts";
import { Random } from "../../test/support/random.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import type { Cpu } from "../kernels/contract.ts";
import { cpuWith, hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../ops/registry.ts";
import type { Program } from "../program/program.ts";
import { readyMethod } from "./method.ts";
import { LoadedProgram } from "./program.ts";

const [ROWS, K] = [40, 64];

/** swiglu_halves(linear(norm(x))) with weights [n, K]; `isShown` gives what the gate reads as a result too. */
function program(n: number, isShown = false): Program {
  const source: MethodSource = {
    name: "forward",
    inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, ROWS, K] }, smallest: [1, 1, K] }],
    build(builder, [x]) {
      const ops = new Ops(builder);
      const normed = ops.call("lowbit::rms_norm.out", x!, builder.constant(vector("norm", Array(K).fill(1))), 1e-5);
      const weights = builder.constant(packed("gate_up", n, K));
      const whole = ops.call("torchao::_linear_8bit_act_4bit_weight.out", normed, weights, 32, n, K);
      const gated = ops.call("lowbit::swiglu_halves.out", whole);
      return isShown ? [gated, whole] : [gated];
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
    constants: await Promise.all(constants.map(({ data }) => data.read())),
  };
  const { calls } = readyMethod(method, [[1, rows, K]], memory, { registry: operators, cpu });
  return calls.map(({ kernel }) => kernel.name);
}

it("runs both on one kernel where there is one for the CPU, the rows and the columns", async () => {
  const amx = cpuWith("sapphire-rapids");
  const joined = "linear_a8_swiglu_wx_32x32x64_amx_int8";
  expect(await kernelsOf(program(96), ROWS, amx)).toContain(joined);
  expect(await kernelsOf(program(96), ROWS, amx)).toHaveLength(2);
  expect(await kernelsOf(program(96), 31, amx)).toHaveLength(3);
  expect(await kernelsOf(program(80), ROWS, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96, true), ROWS, amx)).toHaveLength(3);
  expect(await kernelsOf(program(96), ROWS, cpuWith("ice-lake"))).toHaveLength(3);
  expect(await kernelsOf(program(96), ROWS, scalarCpu)).toHaveLength(3);
});

it("gives what the calls give one by one", async () => {
  const x = { dtype: "f32", shape: [1, ROWS, K], data: new Random(1).floats(ROWS * K, 2) } as const;
  const run = async (cpu: Cpu) => {
    const session = (await LoadedProgram.load(program(96), { cpu })).createSession();
    const [y] = await session.run("forward", [x]);
    return [...(y!.data as Float32Array)];
  };
  const [found, expected] = [await run(hostCpu()), await run(scalarCpu)];
  const largest = Math.max(...expected.map(Math.abs));
  for (const [i, value] of found.entries()) expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-3 * largest);
});
