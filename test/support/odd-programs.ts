/** Programs of kinds that no exporter writes: delegates, orders of dimensions, lists, texts and conditions of any kind. */
import { checksum } from "../../src/kernels/layout/header.ts";
import { layoutNamed, packWeights } from "../../src/kernels/layout/packed.ts";
import type { Instruction, Value } from "../../src/program/program.ts";
import { CAPACITY, collector, type HostileProgram, WIDTH } from "./honest-program.ts";
import type { ProgramEditor } from "./program-editor.ts";

const { found, add, addBoth } = collector();

/** Of a name, and of messages that hold it. */
const LONG = 1 << 20;
const short = (pattern: string) => new RegExp(`^.{0,4200}$`.replace(".{", `(?=.*${pattern}).{`), "s");

const ones = (e: ProgramEditor, ...sizes: readonly number[]) => {
  const count = sizes.reduce((product, size) => product * size, 1);
  return e.tensor("f32", sizes, { constant: e.constant(new Float32Array(count).fill(1)) });
};

function delegates(): void {
  const call = (delegate: number, args: readonly number[] = []): Instruction => ({ kind: "delegate", delegate, args });
  add("a delegate that is called", /calls delegates XnnpackBackend; export without/, (e) => {
    e.method.delegates = ["XnnpackBackend"];
    e.first(call(0, [0, 1]));
  });
  add("a delegate that is not called", /calls delegates XnnpackBackend; export without/, (e) => {
    e.method.delegates = ["XnnpackBackend"];
  });
  add("a delegate behind a jump that is never taken", /calls delegates MyBackend; export without/, (e) => {
    e.method.delegates = ["MyBackend"];
    e.first({ kind: "jumpFalse", condition: e.bool(false), destination: 2 }, call(0));
  });
  add("a thousand delegates", short("calls delegates backend0, .* characters "), (e) => {
    e.method.delegates = Array.from({ length: 1000 }, (_, i) => `backend${i}`);
  });
}

function orders(): void {
  const ordered = (e: ProgramEditor, index: number, dimOrder: readonly number[]) => {
    (e.method.values as Value[])[index] = { ...e.method.values[index], dimOrder } as Value;
    return index;
  };
  const ORDER = /dimensions in memory in the order \[1,0\], and only ascending/;
  addBoth("a constant whose columns come first", ORDER, (e) => {
    const out = e.tensor("f32", [4, 8]);
    e.first(e.call("aten::clone.out", ordered(e, ones(e, 4, 8), [1, 0]), e.none(), out, out));
  });
  addBoth("a result whose columns come first", ORDER, (e) => {
    const out = ordered(e, e.tensor("f32", [4, 8]), [1, 0]);
    e.first(e.call("aten::clone.out", ones(e, 4, 8), e.none(), out, out));
  });
  addBoth("an input with channels last", /in the order \[0,2,1\]/, (e) => ordered(e, e.method.inputs[0]!, [0, 2, 1]));
  addBoth("dimensions of one place in any order", null, (e) => {
    const out = ordered(e, e.tensor("f32", [1, 8, 1]), [2, 1, 0]);
    e.first(e.call("aten::clone.out", ordered(e, ones(e, 1, 8, 1), [1, 0, 2]), e.none(), out, out));
  });
  addBoth("a tensor of 16 dimensions", null, (e) => {
    const sizes = new Array<number>(16).fill(1).fill(2, 0, 4);
    const out = e.tensor("f32", sizes);
    const order = e.ints(...sizes.map((_, dim) => 15 - dim));
    e.first(e.call("aten::permute_copy.out", ones(e, ...sizes.toReversed()), order, out, out));
  });
  addBoth("a tensor unsqueezed to 17 dimensions", null, (e) => {
    const out = e.tensor("f32", new Array<number>(16).fill(1));
    e.first(e.call("aten::unsqueeze_copy.out", ones(e, ...new Array<number>(16).fill(1)), e.int(0), out, out));
  });
  addBoth("a step that leads far out", null, (e) => {
    const out = e.tensor("f32", [1]);
    const bounds = [e.int(0), e.int(0), e.int(2 ** 53), e.int(2 ** 52)];
    e.first(e.call("aten::slice_copy.Tensor_out", ones(e, 4), ...bounds, out, out));
  });
  addBoth("a step of no places", /step/, (e) => {
    const out = e.tensor("f32", [4]);
    const bounds = [e.int(0), e.int(0), e.int(4), e.int(0)];
    e.first(e.call("aten::slice_copy.Tensor_out", ones(e, 4), ...bounds, out, out));
  });
  addBoth("an expansion to sizes of 2^31", /does not fit|fewer than 2\^53|expected/, (e) => {
    const out = e.tensor("f32", [4]);
    e.first(e.call("aten::expand_copy.out", ones(e, 1), e.ints(2 ** 31, 2 ** 31), e.bool(false), out, out));
  });
}

function lists(): void {
  const empty = (e: ProgramEditor) => e.tensor("f32", [0], { offset: 0 });
  const join = (e: ProgramEditor, list: number, out: number) => e.call("aten::cat.out", list, e.int(0), out, out);
  const value = (e: ProgramEditor, made: Value) => e.value(made);
  addBoth("a list of one tensor very often", null, (e) => {
    const part = ones(e, 1);
    const out = e.tensor("f32", [50_000]);
    e.first(join(e, e.tensors(...new Array<number>(50_000).fill(part)), out));
    e.method.outputs = [out];
  });
  addBoth("a list of nothing very often", null, (e) => {
    const [part, out] = [empty(e), empty(e)];
    e.first(join(e, e.tensors(...new Array<number>(100_000).fill(part)), out));
  });
  add("a result into one tensor very often", /over argument|gives/, (e) => {
    const part = e.tensor("f32", [1]);
    const parts = e.tensors(...new Array<number>(20_000).fill(part));
    e.first(e.call("aten::split_copy.Tensor_out", ones(e, 20_000), e.int(1), e.int(0), parts, parts));
  });
  add("a result into as many tensors as there are places", null, (e) => {
    const parts = e.tensors(...Array.from({ length: 4000 }, () => e.tensor("f32", [1])));
    e.first(e.call("aten::unbind_copy.int_out", ones(e, 4000), e.int(0), parts, parts));
  });
  addBoth("an empty list", /at least one tensor|expected/, (e) => {
    const out = e.tensor("f32", [1]);
    e.first(join(e, e.tensors(), out));
  });
  addBoth("a list with nothing in it", /at least one tensor|expected/, (e) => {
    const out = e.tensor("f32", [1]);
    e.first(join(e, value(e, { kind: "optionalTensorList", items: [-1, -1] }), out));
  });
  const others: readonly (readonly [string, Value])[] = [
    ["truth values", { kind: "boolList", items: [true, false] }],
    ["doubles", { kind: "doubleList", items: [Number.NaN, 1] }],
    ["no ints", { kind: "intList", items: [] }],
    ["no tensors", { kind: "tensorList", items: [] }],
    ["text", { kind: "string", value: "0" }],
    ["nothing", { kind: "null" }],
  ];
  for (const [what, made] of others) {
    addBoth(`${what} in place of a list of tensors`, /expected|supported/, (e) => {
      const out = e.tensor("f32", [1]);
      e.first(join(e, value(e, made), out));
    });
    addBoth(
      `${what} in place of sizes`,
      made.kind === "intList" ? /expected|does not fit/ : /expected|supported/,
      (e) => {
        const out = e.tensor("f32", [4]);
        e.first(e.call("aten::view_copy.out", ones(e, 4), value(e, made), out, out));
      },
    );
    addBoth(`${what} in place of a tensor`, /expected|supported/, (e) => {
      const out = e.tensor("f32", [4]);
      e.first(e.call("aten::add.out", value(e, made), ones(e, 4), e.int(1), out, out));
    });
    addBoth(`${what} in place of a number`, /expected|supported/, (e) => {
      const out = e.tensor("f32", [2, 2]);
      e.first(e.call("aten::select_copy.int_out", ones(e, 2, 2, 2), value(e, made), e.int(0), out, out));
    });
    add(`${what} as an output`, /is no tensor/, (e) => {
      e.method.outputs = [value(e, made)];
    });
    addBoth(`${what} in place of a result`, /expected a tensor to write to|expected/, (e) => {
      const index = value(e, made);
      e.first(e.call("aten::add.out", ones(e, 4), ones(e, 4), e.int(1), index, index));
    });
  }
  add("a list that is moved", /moves a value of kind tensorList/, (e) => {
    e.first({ kind: "move", from: e.tensors(ones(e, 1)), to: e.tensors(e.tensor("f32", [1])) });
  });
  add("a list of numbers that are worked out", /does not fit|expected/, (e) => {
    const [size, out] = [e.int(1), e.tensor("f32", [4])];
    const list = value(e, { kind: "intList", items: new Array<number>(20).fill(size) });
    e.first(
      e.call("executorch_prim::mul.Scalar", e.int(2 ** 40), e.int(2), size),
      e.call("aten::view_copy.out", ones(e, 4), list, out, out),
    );
  });
}

function texts(): void {
  const renamed = (e: ProgramEditor, name: string, overload = "out") => {
    e.method.operators.push({ name, overload });
    e.first({ kind: "kernel", operator: e.method.operators.length - 1, args: [] });
  };
  add("an operator of a name that is very long", short("unknown operators x{100}"), (e) =>
    renamed(e, "x".repeat(LONG)),
  );
  add("an operator whose name steers a terminal", /unknown operators \\x1b\[2J\.\\x07/, (e) =>
    renamed(e, "\u001b[2J", "\u0007"),
  );
  add("an operator without a name", /unknown operators/, (e) => renamed(e, "", ""));
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"])
    add(`an operator named ${name}`, /unknown operators/, (e) => renamed(e, name, ""));
  add("a constant of a name that is very long", short("expected"), (e) => {
    const constant = ones(e, 4);
    (e.method.values as Value[])[constant] = { ...e.method.values[constant], name: "y".repeat(LONG) } as Value;
    const out = e.tensor("f32", [4]);
    e.first(e.call("aten::linear.out", constant, constant, e.none(), out, out));
  });
  addBoth("a text that names no rounding", /rounding_mode|expected/, (e) => {
    const out = e.tensor("f32", [4]);
    const mode = e.value({ kind: "string", value: "z".repeat(LONG) });
    e.first(e.call("aten::div.out_mode", ones(e, 4), ones(e, 4), mode, out, out));
  });
}

function conditions(): void {
  const jump = (e: ProgramEditor, condition: number) =>
    e.first({ kind: "jumpFalse", condition, destination: 1 }, e.freeNothing());
  const truth = (e: ProgramEditor, ...items: readonly number[]) =>
    e.tensor("bool", [items.length], { constant: e.constant(Uint8Array.from(items)) });
  for (const [what, made] of [
    ["a number", (e: ProgramEditor) => e.int(0)],
    ["nothing", (e: ProgramEditor) => e.none()],
    ["a text", (e: ProgramEditor) => e.value({ kind: "string", value: "" })],
    ["a list", (e: ProgramEditor) => e.ints()],
    ["a tensor of numbers", (e: ProgramEditor) => ones(e, 1)],
  ] as const)
    add(`${what} as a condition`, /expected a truth value as condition/, (e) => jump(e, made(e)));
  add("a tensor of truth as a condition", null, (e) => jump(e, truth(e, 1, 1)));
  // Taken, the jump leads to its own place for ever.
  add("a tensor of which one is false as a condition", /does not end/, (e) => {
    e.method.instructions = [{ kind: "jumpFalse", condition: truth(e, 1, 0), destination: 0 }];
  });
  add("a condition that becomes a number", /expected a truth value as condition/, (e) => {
    const condition = e.bool(true);
    e.first({ kind: "move", from: e.int(0), to: condition }, { kind: "jumpFalse", condition, destination: 2 });
  });
}

/** What a loop finds changed when a call is made a second time. */
function loops(): void {
  const [n, k, groupSize] = [64, 256, 32];
  const shape = { bits: 4, n, k, groupSize, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;
  const weights = {
    ...shape,
    qvals: new Int8Array(n * k).fill(1),
    scales: new Float32Array((n * k) / groupSize).fill(1),
    zeros: null,
    levels: null,
  };
  for (const size of [4096, 1 << 22])
    add(`weights whose header changes to ${size} rows between two rounds of a loop`, null, (e) => {
      const good = packWeights(weights, null, layoutNamed("panel16"));
      const bad = good.slice();
      const header = new DataView(bad.buffer);
      header.setUint32(16, size, true);
      header.setUint32(60, checksum(bad.subarray(0, 60)), true);
      const [first, second] = [good, bad].map((bytes) =>
        e.tensor("u8", [bytes.length], { constant: e.constant(bytes) }),
      ) as [number, number];
      const packed = e.tensor("u8", [good.length]);
      const source = e.tensor("u8", [good.length]);
      const [x, out] = [e.tensor("f32", [1, 1, k]), e.tensor("f32", [1, 1, n])];
      const sizes = [groupSize, n, k].map((value) => e.int(value));
      const [round, isLast, no] = [e.int(0), e.bool(true), e.bool(false)];
      const none = e.none();
      e.first(
        e.call("executorch_prim::mul.Scalar", e.int(0), e.int(0), round),
        e.call("aten::clone.out", first, none, source, source),
        e.call("aten::copy_", packed, source, no, packed),
        e.call("torchao::_linear_8bit_act_4bit_weight.out", x, packed, ...sizes, out, out),
        e.call("aten::clone.out", second, none, source, source),
        e.call("executorch_prim::add.Scalar", round, e.int(1), round),
        e.call("executorch_prim::ge.Scalar", round, e.int(2), isLast),
        { kind: "jumpFalse", condition: isLast, destination: 2 },
      );
    });
  add("attention whose position grows in a loop", /expected 0\.\./, (e) => {
    const position = e.tensor("i64", [1]);
    const one = e.tensor("i64", [1], { constant: e.constant(BigInt64Array.of(BigInt(CAPACITY))) });
    const [q, k, v, out] = [0, 1, 2, 3].map(() => e.tensor("f32", [1, 2, WIDTH])) as [number, number, number, number];
    const caches = ["keys", "values"].map((name) =>
      e.method.values.findIndex((value) => value.kind === "tensor" && value.name === name),
    );
    const numbers = [e.double(1), e.int(0), e.double(0)];
    e.first(
      e.call("lowbit::attention.out", q, k, v, ...caches, position, ...numbers, out, out),
      e.call("aten::add.out", position, one, e.int(1), position, position),
      { kind: "jumpFalse", condition: e.bool(false), destination: 0 },
    );
  });
}

/** Calls that nothing interrupts. */
function work(): void {
  addBoth("a product of matrices that takes hours", /takes 137438953472 multiplications in one call/, (e) => {
    const [m, k] = [2 ** 10, 2 ** 17];
    const a = e.tensor("f32", [m, k]);
    const b = e.tensor("f32", [k, m], { offset: e.offsetOf(a) });
    const out = e.tensor("f32", [m, m]);
    e.first(e.call("aten::mm.out", a, b, out, out));
  });
  addBoth("attention that takes hours", /takes 4398046511104 multiplications in one call/, (e) => {
    const [tokens, heads] = [2 ** 15, 2 ** 5];
    const q = e.tensor("f32", [1, tokens, heads, 64]);
    const keys = e.tensor("f32", [1, tokens, 1, 64]);
    const out = e.tensor("f32", [1, tokens, heads, 64]);
    const numbers = [e.int(0), e.none(), e.double(0), e.bool(false), e.none()];
    e.first(e.call("llama::custom_sdpa.out", q, keys, keys, ...numbers, out, out));
  });
}

/** Programs of these kinds, each once. */
export function oddPrograms(): readonly HostileProgram[] {
  if (found.length === 0) for (const part of [delegates, orders, lists, texts, conditions, loops, work]) part();
  return found;
}
