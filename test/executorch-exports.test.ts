/** Programs of ExecuTorch's own exporter run here, with the logits of its runtime: see make.py and make-others.py of executorch-exports/. */
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { memorySource } from "../src/byte-source.ts";
import { InvalidArgumentError, LowbitError, ShapeError, UnsupportedError } from "../src/errors.ts";
import type { Method, Program } from "../src/program/program.ts";
import { readProgram } from "../src/program/read.ts";
import { LoadedProgram } from "../src/runtime/program.ts";
import type { Session } from "../src/runtime/session.ts";
import type { Tensor } from "../src/tensor.ts";

const folder = new URL("./executorch-exports/", import.meta.url);
const golden = JSON.parse(await readFile(new URL("logits.json.golden", folder), "utf8")) as {
  readonly chunks: readonly (readonly number[])[];
  readonly logits: Readonly<Record<string, readonly (readonly number[])[]>>;
};

const read = async (name: string): Promise<Program> =>
  readProgram(memorySource(name, await readFile(new URL(`${name}.pte.golden`, folder))));

const ints = (values: readonly number[], shape: readonly number[]): Tensor => ({
  dtype: "i64",
  shape,
  data: BigInt64Array.from(values, BigInt),
});

async function forward(session: Session, tokens: readonly number[], position: number): Promise<Float32Array> {
  const [logits] = await session.run("forward", [ints(tokens, [1, tokens.length]), ints([position], [1])]);
  return logits!.data as Float32Array;
}

function relativeError(found: Float32Array, expected: readonly number[]): number {
  const square = (total: number, value: number) => total + value * value;
  const difference = expected.map((value, i) => found[i]! - value);
  return Math.sqrt(difference.reduce(square, 0) / expected.reduce(square, 0));
}

describe.each(Object.keys(golden.logits))("%s", (name) => {
  it("gives the logits of ExecuTorch's runtime, in every session", async () => {
    const program = await LoadedProgram.load(await read(name));
    const sessions = [program.createSession(), program.createSession()];
    let position = 0;
    for (const [i, tokens] of golden.chunks.entries()) {
      for (const session of sessions) {
        const found = await forward(session, tokens, position);
        expect(found.length).toBe(golden.logits[name]![i]!.length);
        expect(relativeError(found, golden.logits[name]![i]!)).toBeLessThan(1e-5);
      }
      position += tokens.length;
    }
  });

  it("refuses tokens and positions out of range, and works on", async () => {
    const session = (await LoadedProgram.load(await read(name))).createSession();
    await expect(forward(session, [3, 64], 0)).rejects.toThrow(InvalidArgumentError);
    await expect(forward(session, [3], 32)).rejects.toThrow(LowbitError);
    const tooFew = session.run("forward", [ints([3], [1, 1])]);
    await expect(tooFew).rejects.toThrow("expected 2 inputs but found 1");
    await expect(forward(session, new Array(33).fill(1), 0)).rejects.toThrow(InvalidArgumentError);
    expect(relativeError(await forward(session, golden.chunks[0]!, 0), golden.logits[name]![0]!)).toBeLessThan(1e-5);
  });
});

interface StoredTensor {
  readonly dtype: "i64" | "f32";
  readonly shape: readonly number[];
  readonly data: readonly number[];
}
interface StoredCall {
  readonly method: string;
  readonly inputs: readonly StoredTensor[];
  readonly output: StoredTensor;
}

const tensorOf = ({ dtype, shape, data }: StoredTensor): Tensor =>
  dtype === "i64" ? ints(data, shape) : { dtype, shape, data: Float32Array.from(data) };

/** Calls of a program of make-others.py, with their results. */
const callsOf = async (name: string): Promise<readonly StoredCall[]> =>
  JSON.parse(await readFile(new URL(`${name}.json.golden`, folder), "utf8"));

describe("programs of other exporters", () => {
  it.each(["off-graph-cache", "several-methods", "optimum", "optimum-custom-sdpa", "transformers"])(
    "%s gives the results of ExecuTorch, in every session",
    async (name) => {
      const program = await LoadedProgram.load(await read(name));
      const sessions = [program.createSession(), program.createSession()];
      for (const { method, inputs, output } of await callsOf(name))
        for (const session of sessions) {
          const [found] = await session.run(method, inputs.map(tensorOf));
          expect(found!.data.length).toBe(output.data.length);
          expect(relativeError(found!.data as Float32Array, output.data)).toBeLessThan(1e-5);
        }
    },
  );
});

describe("caches off the graph", () => {
  it("refuse positions beyond the length that the program says", async () => {
    const session = (await LoadedProgram.load(await read("off-graph-cache"))).createSession();
    const run = (position: number) => session.run("forward", [ints([3], [1, 1]), ints([position], [1, 1])]);
    await expect(run(32)).rejects.toThrow(/argument position.*expected 0\.\.31 but found 32/);
    await expect(run(31)).resolves.toHaveLength(1);
  });

  it("need that length", async () => {
    const program = await read("off-graph-cache");
    const methods = program.methods.filter(({ name }) => name !== "get_max_seq_len");
    await expect(LoadedProgram.load({ ...program, methods })).rejects.toThrow(
      /expected metadata method get_max_seq_len/,
    );
  });

  it("need a layer that is a number", async () => {
    const program = await read("off-graph-cache");
    const methods = program.methods.map((method) => {
      const update = method.operators.findIndex(({ name }) => name === "kvcache::update_and_attend");
      const instructions = method.instructions.map((instruction) =>
        instruction.kind === "kernel" && instruction.operator === update
          ? { ...instruction, args: instruction.args.with(4, instruction.args[0]!) }
          : instruction,
      );
      return { ...method, instructions };
    });
    await expect(LoadedProgram.load({ ...program, methods })).rejects.toThrow(
      /kvcache::update_and_attend: expected keys/,
    );
  });
});

it("calls that write several tensors, or a list of them", async () => {
  const session = (await LoadedProgram.load(await read("parts"))).createSession();
  const data = Float32Array.from({ length: 24 }, (_, i) => ((7 * i) % 24) - 10);
  const found = await session.run("forward", [{ dtype: "f32", shape: [2, 3, 4], data }]);
  const rows = Array.from({ length: 6 }, (_, row) => [...data.subarray(4 * row, 4 * row + 4)]);
  const largest = rows.map((row) => Math.max(...row));
  expect(found.map(({ shape }) => shape.join())).toEqual(["2,1,4", "2,2,4", "3,4", "3,4", "2,3", "2,3"]);
  expect(found.map((tensor) => Array.from(tensor.data, Number))).toEqual([
    [...rows[0]!, ...rows[3]!],
    [...rows[1]!, ...rows[2]!, ...rows[4]!, ...rows[5]!],
    rows.slice(0, 3).flat(),
    rows.slice(3).flat(),
    largest,
    rows.map((row, i) => row.indexOf(largest[i]!)),
  ]);
});

it("a list of constants is not written to", async () => {
  const program = await read("parts");
  const [forward] = program.methods;
  const data = { byteLength: 32, read: async () => new Uint8Array(32) };
  const list = forward!.values.find(({ kind }) => kind === "tensorList") as { readonly items: readonly number[] };
  const values = forward!.values.map((value, i) =>
    i === list.items[0] && value.kind === "tensor" ? { ...value, allocation: null, constant: 0 } : value,
  );
  const changed = { ...program, methods: [{ ...forward!, values }], constants: [{ data, alignment: 16 }] };
  const run = async () =>
    (await LoadedProgram.load(changed))
      .createSession()
      .run("forward", [{ dtype: "f32", shape: [2, 3, 4], data: new Float32Array(24) }]);
  await expect(run()).rejects.toThrow(/argument out: is written to but method forward gives a constant/);
});

describe("programs that this runtime cannot run", () => {
  async function changed(change: (forward: Method) => Partial<Method>): Promise<Program> {
    const program = await read("custom-sdpa");
    const methods = program.methods.map((method) =>
      method.name === "forward" ? { ...method, ...change(method) } : method,
    );
    return { ...program, methods };
  }

  it("lists unknown operators", async () => {
    const program = await changed(({ operators }) => ({
      operators: operators.map((operator) => ({
        ...operator,
        name: operator.name.replace("aten::mul", "aten::outer"),
      })),
    }));
    await expect(LoadedProgram.load(program)).rejects.toThrow(UnsupportedError);
    await expect(LoadedProgram.load(program)).rejects.toThrow(/aten::outer.*registerOperator/);
  });

  it("names the delegates, and says what to do", async () => {
    const program = await read("xnnpack");
    await expect(LoadedProgram.load(program)).rejects.toThrow(UnsupportedError);
    await expect(LoadedProgram.load(program)).rejects.toThrow(/delegates XnnpackBackend; export without.*xnnpack/);
  });

  it("refuses writing into a constant", async () => {
    const program = await changed((method) => {
      const constant = method.values.findIndex((value) => value.kind === "tensor" && value.constant !== null);
      const update = method.operators.findIndex(({ name }) => name === "llama::update_cache");
      return {
        instructions: method.instructions.map((instruction) =>
          instruction.kind === "kernel" && instruction.operator === update
            ? { ...instruction, args: instruction.args.with(1, constant) }
            : instruction,
        ),
      };
    });
    const session = (await LoadedProgram.load(program)).createSession();
    await expect(forward(session, [1], 0)).rejects.toThrow(ShapeError);
  });

  it("ends a method that jumps in circles", async () => {
    const program = await changed((method) => {
      const condition = method.values.findIndex(({ kind }) => kind === "bool");
      const values = method.values.with(condition, { kind: "bool", value: false });
      return { values, instructions: [{ kind: "jumpFalse", condition, destination: 0 }] };
    });
    const session = (await LoadedProgram.load(program)).createSession();
    await expect(forward(session, [1], 0)).rejects.toThrow(/does not end/);
  });
});
