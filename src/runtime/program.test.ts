/** Programs of a few operators: sessions, state, wrong inputs, and files that promise what they do not keep. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { memorySource } from "../byte-source.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import { InvalidArgumentError, LowbitError, ShapeError, UnsupportedError } from "../errors.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { Ops } from "../ops/ops.ts";
import type { Instruction, Method, Program, Value } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import { operators } from "../registry/operators.ts";
import { type Tensor, zeroTensor } from "../tensor.ts";
import { LoadedProgram } from "./program.ts";

const WIDTH = 4;
const CAPACITY = 8;

/** A decoder of one layer: attention over all tokens so far, of x scaled by a constant. */
const forward: MethodSource = {
  name: "forward",
  inputs: [
    { name: "x", spec: { dtype: "f32", shape: [1, 3, WIDTH] }, smallest: [1, 1, WIDTH] },
    { name: "position", spec: { dtype: "i64", shape: [1] }, smallest: [1] },
  ],
  build(builder, [x, position]) {
    const ops = new Ops(builder);
    const scale = ops.literal("scale", Float32Array.of(1, 2, 3, 4));
    const normed = ops.call("lowbit::rms_norm.out", x!, scale, 1e-5);
    const cache = { dtype: "f32", shape: [1, CAPACITY, 1, WIDTH] } as const;
    const [keyCache, valueCache] = [ops.state("keys", cache), ops.state("values", cache)];
    return [
      ops.add(
        ops.attention(normed, normed, normed, { cache: { keyCache, valueCache, position: position! }, scale: 1 }),
        x!,
      ),
    ];
  },
};

const compiled = (): Program =>
  compile([forward], { registry: operators, cpu: scalarCpu, metadata: new Map([["get_vocab_size", 5]]) });

const load = (program = compiled()) => LoadedProgram.load(program, { cpu: scalarCpu });

/** Row t of a sequence that is the same in every test. */
const row = (t: number, seed = 0) => Array.from({ length: WIDTH }, (_, d) => Math.sin(3 * t + d + seed));

function inputs(first: number, count: number, seed = 0): Tensor[] {
  const values = Array.from({ length: count }, (_, i) => row(first + i, seed)).flat();
  return [
    { dtype: "f32", shape: [1, count, WIDTH], data: Float32Array.from(values) },
    { dtype: "i64", shape: [1], data: BigInt64Array.of(BigInt(first)) },
  ];
}

/** Results of rows 0..5 in calls of the given sizes. */
async function inChunks(program: LoadedProgram, sizes: readonly number[], seed = 0): Promise<number[]> {
  const session = program.createSession();
  const results: number[] = [];
  let first = 0;
  for (const size of sizes) {
    const [y] = await session.run("forward", inputs(first, size, seed));
    results.push(...(y!.data as Float32Array));
    first += size;
  }
  return results;
}

describe("sessions", () => {
  it("give the same whether rows come at once or one by one", async () => {
    const program = await load();
    const expected = await inChunks(program, [1, 1, 1, 1, 1, 1]);
    for (const sizes of [
      [3, 3],
      [2, 2, 2],
      [1, 2, 3],
      [3, 1, 2],
    ])
      expect(await inChunks(program, sizes)).toEqual(expected);
  });

  it("of one program do not disturb each other, interleaved or at the same time", async () => {
    const program = await load();
    const seeds = [1, 2, 3];
    const expected = await Promise.all(seeds.map((seed) => inChunks(program, [2, 1, 1, 2], seed)));
    for (const [i, seed] of seeds.entries())
      expect(await inChunks(await load(), [2, 1, 1, 2], seed)).toEqual(expected[i]);
    const sessions = seeds.map(() => program.createSession());
    const results: number[][] = seeds.map(() => []);
    for (const [first, size] of [
      [0, 2],
      [2, 1],
      [3, 1],
      [4, 2],
    ] as const)
      await Promise.all(
        seeds.map(async (seed, i) => {
          const [y] = await sessions[i]!.run("forward", inputs(first, size, seed));
          results[i]!.push(...(y!.data as Float32Array));
        }),
      );
    expect(results).toEqual(expected);
  });

  it("start with zeroed state and can be reset to it", async () => {
    const program = await load();
    const session = program.createSession();
    const first = Array.from((await session.run("forward", inputs(0, 3)))[0]!.data as Float32Array);
    await session.run("forward", inputs(3, 3));
    session.reset();
    expect(Array.from((await session.run("forward", inputs(0, 3)))[0]!.data as Float32Array)).toEqual(first);
  });

  it("cannot be reset during a run, and go on", async () => {
    const program = await load();
    const session = program.createSession();
    const expected = await inChunks(program, [3, 3]);
    await session.run("forward", inputs(0, 3));
    const running = session.run("forward", inputs(3, 3));
    expect(() => session.reset()).toThrow(/expected reset after its runs/);
    expect([...((await running)[0]!.data as Float32Array)]).toEqual(expected.slice(3 * WIDTH));
    await expect(session.run("forward", inputs(7, 2))).rejects.toThrow(InvalidArgumentError);
    session.reset();
  });

  it("keep many sizes of inputs apart", async () => {
    const program = await load();
    const session = program.createSession();
    const expected = await inChunks(program, [1, 1, 1]);
    for (let round = 0; round < 5; round++)
      for (const size of [1, 2, 3]) {
        const [y] = await session.run("forward", inputs(0, size));
        expect(y!.shape).toEqual([1, size, WIDTH]);
        expect(Array.from(y!.data as Float32Array)).toEqual(expected.slice(0, size * WIDTH));
      }
  });

  it("go on after a call that failed", async () => {
    const program = await load();
    const session = program.createSession();
    await session.run("forward", inputs(0, 2));
    await expect(session.run("forward", inputs(7, 2))).rejects.toThrow(InvalidArgumentError);
    const [y] = await session.run("forward", inputs(2, 1));
    expect(Array.from(y!.data as Float32Array)).toEqual((await inChunks(program, [2, 1])).slice(2 * WIDTH));
  });

  it("obey an abort before they start", async () => {
    const session = (await load()).createSession();
    const reason = new Error("enough");
    await expect(session.run("forward", inputs(0, 1), AbortSignal.abort(reason))).rejects.toBe(reason);
    await session.run("forward", inputs(0, 1));
  });
});

describe("a loaded program", () => {
  it("says what it has", async () => {
    const program = await load();
    expect([program.has("forward"), program.has("get_vocab_size"), program.has("backward")]).toEqual([
      true,
      false,
      false,
    ]);
    expect(program.count("get_vocab_size")).toBe(5);
    expect(program.count("get_max_seq_len", 9)).toBe(9);
    expect(() => program.count("get_max_seq_len")).toThrow(/expected metadata method get_max_seq_len/);
    expect(program.memoryUse).toMatchObject({ constants: 16, state: 2 * CAPACITY * WIDTH * 4 });
    await program.createSession().run("forward", inputs(0, 1));
    expect([...program.activeKernels.keys()]).toEqual([
      "lowbit::rms_norm.out",
      "lowbit::attention.out",
      "aten::add.out",
    ]);
  });

  it("shares the scratch of kernels between runs, which keep what they were given", async () => {
    const program = await load();
    const first = program.kernelScratch(100);
    expect(program.kernelScratch(60).buffer).toBe(first.buffer);
    const larger = program.kernelScratch(150);
    expect(larger.length).toBe(150);
    expect(larger.buffer).not.toBe(first.buffer);
    expect(program.kernelScratch(200).buffer).toBe(larger.buffer);
  });

  it("a session that was disposed of ends its runs and begins none: its state may be another's", async () => {
    const program = await load();
    const session = program.createSession();
    const running = session.run("forward", inputs(0, 3));
    const disposed = session.dispose();
    expect((await running).length).toBe(1);
    await disposed;
    await expect(session.run("forward", inputs(0, 1))).rejects.toThrow(/session was disposed of/);
    expect(() => session.reset()).toThrow(UnsupportedError);
    await session.dispose();
    expect((await program.createSession().run("forward", inputs(0, 1))).length).toBe(1);
  });

  it("serves nobody once it was disposed of", async () => {
    const program = await load();
    const session = program.createSession();
    const running = session.run("forward", inputs(0, 3));
    const waiting = session.run("forward", inputs(3, 1));
    const ends = Promise.allSettled([running, waiting]);
    await program.dispose();
    for (const { status } of await ends) expect(status).toBe("rejected");
    await expect(session.run("forward", inputs(0, 1))).rejects.toThrow(/program was disposed of/);
    expect(() => session.reset()).toThrow(UnsupportedError);
    expect(() => program.createSession()).toThrow(UnsupportedError);
    await session.dispose();
    await program.dispose();
  });

  it("reports progress, and an abort while it loads", async () => {
    const seen: number[][] = [];
    await LoadedProgram.load(compiled(), { onProgress: (done, total) => seen.push([done, total]) });
    expect(seen.at(-1)).toEqual([16, 16]);
    await expect(LoadedProgram.load(compiled(), { signal: AbortSignal.abort(new Error("stop")) })).rejects.toThrow(
      "stop",
    );
  });
});

describe("wrong inputs", () => {
  const [x, position] = inputs(0, 2) as [Tensor, Tensor];
  it.each<[string, string, Tensor[], RegExp]>([
    ["an unknown method", "backward", [x, position], /method backward: expected one of forward/],
    ["a metadata method", "get_vocab_size", [], /method get_vocab_size: expected one of forward/],
    ["too few", "forward", [x], /method forward: expected 2 inputs but found 1/],
    ["too many", "forward", [x, position, position], /expected 2 inputs but found 3/],
    [
      "too many tokens",
      "forward",
      [zeroTensor("f32", [1, 4, WIDTH]), position],
      /input 0: expected sizes from 1 to those of \[1,3,4\] but found \[1,4,4\]/,
    ],
    [
      "no tokens",
      "forward",
      [zeroTensor("f32", [1, 0, WIDTH]), position],
      /input 0: expected sizes from 1 to those of/,
    ],
    [
      "another rank",
      "forward",
      [zeroTensor("f32", [3, WIDTH]), position],
      /input 0: expected sizes from 1 to those of/,
    ],
    [
      "another width",
      "forward",
      [zeroTensor("f32", [1, 1, 3]), position],
      /expected dimension|argument|expected shape/,
    ],
    [
      "another dtype",
      "forward",
      [zeroTensor("f16", [1, 2, WIDTH]), position],
      /input 0: expected dtype f32 but found "f16"/,
    ],
    [
      "sizes of a static input",
      "forward",
      [x, zeroTensor("i64", [2])],
      /input 1: expected sizes \[1\] but found \[2\]/,
    ],
    [
      "fewer values than its shape says",
      "forward",
      [{ ...x, data: new Float32Array(5) }, position],
      /input 0: expected 8 values but found 5/,
    ],
    [
      "more values than its shape says",
      "forward",
      [{ ...x, data: new Float32Array(99) }, position],
      /input 0: expected 8 values but found 99/,
    ],
    [
      "a position beyond the cache",
      "forward",
      [x, inputs(7, 1)[1]!],
      /argument input_pos: expected 0\.\.6 but found 7/,
    ],
    ["a negative position", "forward", [x, inputs(-1, 1)[1]!], /argument input_pos: expected 0\.\.6 but found -1/],
  ])("%s", async (_, method, given, message) => {
    const session = (await load()).createSession();
    await expect(session.run(method, given)).rejects.toThrow(message);
    await expect(session.run(method, given)).rejects.toThrow(LowbitError);
  });
});

/** The program with its forward method changed, as another writer, or an attacker, may have written it. */
function changed(change: (method: Method) => Partial<Method>): Program {
  const program = compiled();
  const methods = program.methods.map((method) =>
    method.name === "forward" ? { ...method, ...change(method) } : method,
  );
  return { ...program, methods };
}

type Kernel = Extract<Instruction, { kind: "kernel" }>;

/** Changes the arguments of instruction `index`. */
const withArgs = (index: number, change: (args: readonly number[], method: Method) => readonly number[]) =>
  changed((method) => ({
    instructions: method.instructions.map((instruction, i) =>
      i === index ? { ...(instruction as Kernel), args: change((instruction as Kernel).args, method) } : instruction,
    ),
  }));

const valueIndex = ({ values }: Method, fits: (value: Value) => boolean) => values.findIndex(fits);
const isConstant = (value: Value) => value.kind === "tensor" && value.constant !== null;

describe("a program that this runtime cannot run is refused when it is loaded", () => {
  it.each<[string, Program, RegExp]>([
    [
      "unknown operators",
      changed(() => ({
        operators: [
          { name: "my::a", overload: "out" },
          { name: "my::b", overload: "" },
          { name: "aten::add", overload: "out" },
        ],
      })),
      /method forward: unknown operators my::a.out, my::b; register them/,
    ],
    ["delegates", changed(() => ({ delegates: ["XnnpackBackend"] })), /calls delegates XnnpackBackend; export without/],
  ])("%s", async (_, program, message) => {
    await expect(load(program)).rejects.toThrow(message);
    await expect(load(program)).rejects.toThrow(UnsupportedError);
  });
});

describe("a program that lies is an error, not a crash", () => {
  it.each<[string, Program, RegExp]>([
    ["no arguments", withArgs(0, () => []), /rms_norm.out: expected 4 arguments and the last again/],
    ["too few arguments", withArgs(0, (args) => args.slice(2)), /expected 4 arguments and the last again/],
    ["too many arguments", withArgs(0, (args) => [...args, 0, 0]), /expected 4 arguments and the last again/],
    [
      "another returned value",
      withArgs(0, (args) => args.with(-1, args[0]!)),
      /expected 4 arguments and the last again/,
    ],
    [
      "a constant as out",
      withArgs(0, (args, method) =>
        args.with(-1, valueIndex(method, isConstant)).with(-2, valueIndex(method, isConstant)),
      ),
      /argument out: is written to but method forward gives a constant/,
    ],
    [
      "a constant as cache",
      withArgs(1, (args, method) => args.with(3, valueIndex(method, isConstant))),
      /argument key_cache: is written to but/,
    ],
    ["a tensor for a number", withArgs(0, (args) => args.with(2, args[0]!)), /argument eps: expected a number/],
    ["a number for a tensor", withArgs(0, (args) => args.with(0, args[2]!)), /argument x: expected a tensor/],
    [
      "a number as out",
      withArgs(0, (args) => args.with(-1, args[2]!).with(-2, args[2]!)),
      /expected a tensor to write to but found double/,
    ],
    [
      "an out of another dtype",
      withArgs(0, (args, method) => args.with(-1, method.inputs[1]!).with(-2, method.inputs[1]!)),
      /gives f32 \[1,2,4\], which does not fit/,
    ],
    [
      "an input that is a number",
      changed((method) => ({ inputs: [valueIndex(method, ({ kind }) => kind === "double"), method.inputs[1]!] })),
      /input 0 is no tensor with memory of its own/,
    ],
    [
      "an input that is a constant",
      changed((method) => ({ inputs: [valueIndex(method, isConstant), method.inputs[1]!] })),
      /input 0 is no tensor with memory of its own/,
    ],
    [
      "an output that is a number",
      changed((method) => ({ outputs: [valueIndex(method, ({ kind }) => kind === "double")] })),
      /value \d+ is no tensor/,
    ],
    [
      "memory that is too small",
      changed(() => ({ memorySizes: [0, 16, 16] })),
      /needs \d+ bytes but its memory has \d+/,
    ],
    [
      "memory beyond any machine",
      changed(() => ({ memorySizes: [0, 2 ** 52, 64] })),
      /scratch: the program asks for 4503599627370496 bytes/,
    ],
    ["state beyond any machine", changed(() => ({ memorySizes: [0, 64, 2 ** 52] })), /state: the program asks for/],
    [
      "another memory",
      changed(({ values }) => ({
        values: values.map((value) =>
          value.kind === "tensor" && value.allocation ? { ...value, allocation: { memoryId: 3, offset: 0 } } : value,
        ),
      })),
      /memory 3: expected the handle of sequences/,
    ],
    [
      "no memory",
      changed(({ values }) => ({
        values: values.map((value) =>
          value.kind === "tensor" ? { ...value, allocation: null, constant: null } : value,
        ),
      })),
      /tensors without planned memory/,
    ],
  ])("%s", async (_, program, message) => {
    const run = async () => (await load(program)).createSession().run("forward", inputs(0, 2));
    await expect(run()).rejects.toThrow(message);
    await expect(run()).rejects.toThrow(LowbitError);
  });

  it("an out value that has another shape already", async () => {
    const cacheOut = withArgs(2, (args, method) => {
      const cache = valueIndex(method, (value) => value.kind === "tensor" && value.name === "keys");
      return args.with(-1, cache).with(-2, cache);
    });
    const run = async () => (await load(cacheOut)).createSession().run("forward", inputs(0, 2));
    await expect(run()).rejects.toThrow(ShapeError);
    await expect(run()).rejects.toThrow(/gives \[1,2,4\] into a value that is \[1,8,1,4\] already/);
  });
});

it("numbers that a method counts with are as before a run that failed", async () => {
  const counting = changed((method) => {
    const count = method.values.length;
    const one = count + 1;
    const [normed, attention, sum] = method.instructions as Kernel[];
    const operator = (name: string) => method.operators.length + ["add", "sub"].indexOf(name);
    // count += 1; y = attention + count * x; count -= count.
    return {
      values: [...method.values, { kind: "int", value: 0 }, { kind: "int", value: 1 }],
      operators: [
        ...method.operators,
        ...["add", "sub"].map((name) => ({ name: `executorch_prim::${name}`, overload: "Scalar" })),
      ],
      instructions: [
        { kind: "kernel", operator: operator("add"), args: [count, one, count] },
        normed!,
        attention!,
        { ...sum!, args: sum!.args.with(2, count) },
        { kind: "kernel", operator: operator("sub"), args: [count, count, count] },
      ],
    };
  });
  const session = (await load(counting)).createSession();
  const expected = await inChunks(await load(), [2, 2]);
  const run = async (first: number) => [...((await session.run("forward", inputs(first, 2)))[0]!.data as Float32Array)];
  expect(await run(0)).toEqual(expected.slice(0, 2 * WIDTH));
  await expect(run(7)).rejects.toThrow(/input_pos/);
  expect(await run(2)).toEqual(expected.slice(2 * WIDTH));
});

it("packs weights that a method is given and multiplies by them, in every run", async () => {
  const [n, k] = [3, 32];
  const multiply: MethodSource = {
    name: "multiply",
    inputs: [
      { name: "x", spec: { dtype: "f32", shape: [2, k] }, smallest: [1, k] },
      { name: "weights", spec: { dtype: "u8", shape: [n, k / 2] }, smallest: [n, k / 2] },
    ],
    build(builder, [x, weights]) {
      const scales = new Ops(builder).literal("scales", new Float32Array(n).fill(1));
      const packed = builder.call("aten::_dyn_quant_pack_4bit_weight.out", weights!, scales, null, k, k, n);
      return [builder.call("aten::_dyn_quant_matmul_4bit.out", x!, packed, k, k, n)];
    },
  };
  for (const cpu of [hostCpu(), scalarCpu]) {
    const program = await LoadedProgram.load(compile([multiply], { registry: operators, cpu }), { cpu });
    const session = program.createSession();
    for (const [rows, nibbles, weight] of [
      [1, 0x99, 1],
      [2, 0xbb, 3],
      [1, 0x77, -1],
    ] as const) {
      const x: Tensor = { dtype: "f32", shape: [rows, k], data: new Float32Array(rows * k).fill(1) };
      const weights: Tensor = { dtype: "u8", shape: [n, k / 2], data: new Uint8Array((n * k) / 2).fill(nibbles) };
      const [y] = await session.run("multiply", [x, weights]);
      expect(y!.shape).toEqual([rows, n]);
      for (const value of y!.data) expect(Number(value)).toBeCloseTo(weight * k, 3);
    }
    const kernels = program.activeKernels;
    expect([...kernels.keys()]).toEqual(["aten::_dyn_quant_pack_4bit_weight.out", "aten::_dyn_quant_matmul_4bit.out"]);
    expect([...kernels.values()].flatMap((names) => [...names])).toContain("int4_pack_w4_1x1x1_reference");
  }
});

it("an index among dimensions that have none, in a program of ExecuTorch's exporter", async () => {
  const file = new Uint8Array(readFileSync(new URL("../program/golden/picked.pte.golden", import.meta.url)));
  const session = (await load(await readProgram(memorySource("picked.pte", file)))).createSession();
  const index: Tensor = { dtype: "i64", shape: [4], data: BigInt64Array.of(2n, 0n, -1n, 1n) };
  for (const sign of [1, -1]) {
    const x: Tensor = { dtype: "f32", shape: [2, 3], data: Float32Array.of(1, 2, 3, -4, -5, -6).map((v) => sign * v) };
    const [y] = await session.run("forward", [x, index]);
    const relu = (value: number) => Math.max(0, sign * value);
    expect(y!.shape).toEqual([2, 4]);
    expect([...(y!.data as Float32Array)]).toEqual([3, 1, 3, 2, -6, -4, -6, -5].map(relu));
  }
});
