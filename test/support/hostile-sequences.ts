/** Calls on the sequences of a step, and on several texts, that would read or write what is not theirs, and what must become of each. */
import { SEQUENCE_MEMORY } from "../../src/program/program.ts";
import { collector, type HostileProgram, sequencesProgram, WIDTH } from "./honest-program.ts";
import type { ProgramEditor } from "./program-editor.ts";

const { found, add, addBoth } = collector(sequencesProgram);

const OVERLAP = /writes argument .* over argument .*expected memory apart/;
const CONSTANT = /is written to but/;
const FOREIGN = /expected the sequences of the program's own store|memory 3|expected dtype/;
/** An error, or results of NaN. */
const ANY = /(?:)/;

const floats = (e: ProgramEditor, ...sizes: readonly number[]) => e.tensor("f32", sizes);
const constant = (e: ProgramEditor, sizes: readonly number[], value = 1) => {
  const count = sizes.reduce((product, size) => product * size, 1);
  return e.tensor("f32", sizes, { constant: e.constant(new Float32Array(count).fill(value)) });
};
const i64 = (e: ProgramEditor, ...values: readonly number[]) =>
  e.tensor("i64", [values.length], { constant: e.constant(BigInt64Array.from(values, BigInt)) });
/** The value that stands for the sequences. */
const handle = (e: ProgramEditor) =>
  e.method.values.findIndex((value) => value.kind === "tensor" && value.allocation?.memoryId === SEQUENCE_MEMORY);

interface Convolution {
  readonly x?: number;
  readonly weight?: number;
  readonly sequences?: number;
  readonly state?: number;
  readonly out?: number;
}

function convolution(e: ProgramEditor, given: Convolution = {}) {
  const { x = floats(e, 1, 2, WIDTH), weight = floats(e, 3, WIDTH), sequences = handle(e), state = 1 } = given;
  const { out = floats(e, 1, 2, WIDTH) } = given;
  return e.call("lowbit::update_short_conv.out", x, weight, e.none(), sequences, e.int(state), e.bool(true), out, out);
}

interface Recurrence {
  readonly rows?: number;
  readonly keyHeads?: number;
  readonly keys?: number;
  readonly values?: number;
  readonly k?: number;
  readonly logDecay?: number;
  readonly beta?: number;
  readonly out?: number;
}

function recurrence(e: ProgramEditor, given: Recurrence = {}) {
  const { rows = 2, keyHeads = 1, keys = 8, values = 8 } = given;
  const { k = floats(e, 1, rows, keys), logDecay = floats(e, 1, rows, 2), beta = e.none() } = given;
  const { out = floats(e, 1, rows, values) } = given;
  const inputs = [floats(e, 1, rows, keys), k, floats(e, 1, rows, values), logDecay, beta, handle(e)];
  return e.call("lowbit::linear_recurrence.out", ...inputs, e.int(2), e.int(keyHeads), e.double(1), out, out);
}

interface Attention {
  readonly sequences?: number;
  readonly layer?: number;
  readonly kvHeads?: number;
  readonly headDim?: number;
  readonly v?: number;
  readonly sinks?: number;
  readonly out?: number;
}

function attention(e: ProgramEditor, given: Attention = {}) {
  const { sequences = handle(e), layer = 1, kvHeads = 1, headDim = 32, sinks = e.none() } = given;
  const [q, k, out] = [floats(e, 1, 2, WIDTH), floats(e, 1, 2, 32), given.out ?? floats(e, 1, 2, WIDTH)];
  const { v = floats(e, 1, 2, 32) } = given;
  const numbers = [e.int(layer), e.int(kvHeads), e.int(headDim), e.double(1), e.int(0), e.double(0)];
  return e.call("lowbit::update_and_attend.out", q, k, v, sequences, ...numbers, sinks, out, out);
}

function handles(): void {
  const handlesOf: readonly (readonly [string, (e: ProgramEditor) => number])[] = [
    ["in scratch", (e) => e.tensor("i32", [1])],
    ["in state", (e) => e.tensor("i32", [1], { memory: 2 })],
    ["that is a constant", (e) => e.tensor("i32", [1], { constant: e.constant(Int32Array.of(1)) })],
    ["of floats", (e) => e.tensor("f32", [1], { memory: 3 })],
    ["of four numbers", (e) => e.tensor("i32", [4], { memory: 3 })],
  ];
  for (const [what, make] of handlesOf) {
    const expected = what.includes("constant") ? CONSTANT : FOREIGN;
    addBoth(`a handle ${what}, of a recurrent layer`, expected, (e) => e.first(convolution(e, { sequences: make(e) })));
    addBoth(`a handle ${what}, of attention`, expected, (e) => e.first(attention(e, { sequences: make(e) })));
  }
  addBoth("numbers over the handle", ANY, (e) => {
    const numbers = e.tensor("i32", [1], { constant: e.constant(Int32Array.of(2 ** 31 - 1)) });
    e.first(e.call("aten::clone.out", numbers, e.none(), handle(e), handle(e)));
  });
  add("numbers over a view of the handle", ANY, (e) => {
    const [view, numbers] = [e.tensor("i32", [1, 1]), e.tensor("i32", [1, 1])];
    e.first(
      e.call("executorch_prim::et_view.default", handle(e), e.ints(1, 1), view),
      e.call("aten::copy_", view, numbers, e.bool(false), view),
      convolution(e, { sequences: view }),
    );
  });
}

function states(): void {
  for (const state of [-1, 2 ** 20, 2 ** 31, 2 ** 53])
    addBoth(`state ${state}`, /state/, (e) => e.first(convolution(e, { state })));
  addBoth("a state of two sizes", /state/, (e) => {
    e.first(convolution(e, { state: 1 }), convolution(e, { state: 1, weight: floats(e, 4, WIDTH) }));
  });
  addBoth("the state of another layer", /state/, (e) =>
    e.first(convolution(e, { state: 0, weight: floats(e, 5, WIDTH) })),
  );
  addBoth("a state of terabytes", /cacheBytes|bytes/, (e) => {
    e.first(recurrence(e, { keys: 2 ** 20, values: 2 ** 20, rows: 1, logDecay: floats(e, 1, 1, 1) }));
  });
  for (const taps of [0, 1])
    addBoth(`a convolution of ${taps} taps`, /weight/, (e) =>
      e.first(convolution(e, { weight: floats(e, taps, WIDTH) })),
    );
  addBoth("taps of other channels", /weight/, (e) => e.first(convolution(e, { weight: floats(e, 3, WIDTH - 1) })));
  addBoth("a convolution over its input", OVERLAP, (e) => {
    const x = floats(e, 1, 2, WIDTH);
    e.first(convolution(e, { x, out: e.tensor("f32", [1, 2, WIDTH], { offset: e.offsetOf(x) }) }));
  });
  addBoth("a convolution into a constant", CONSTANT, (e) =>
    e.first(convolution(e, { out: constant(e, [1, 2, WIDTH]) })),
  );
  for (const keyHeads of [0, -1, 3, 2 ** 31])
    addBoth(`a recurrence of ${keyHeads} heads of keys`, /expected/, (e) => e.first(recurrence(e, { keyHeads })));
  const wrong: readonly (readonly [string, (e: ProgramEditor) => Recurrence])[] = [
    ["keys of fewer rows", (e) => ({ k: floats(e, 1, 1, 8) })],
    ["decays of fewer rows", (e) => ({ logDecay: floats(e, 1, 1, 2) })],
    ["no decays", (e) => ({ logDecay: floats(e, 1, 2, 0) })],
    ["decays of more heads than there are values", (e) => ({ logDecay: floats(e, 1, 2, 16) })],
    ["gates of another shape", (e) => ({ beta: floats(e, 1, 2, 1) })],
  ];
  for (const [what, make] of wrong) addBoth(what, /expected/, (e) => e.first(recurrence(e, make(e))));
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])
    addBoth(`decays of ${value}`, null, (e) => e.first(recurrence(e, { logDecay: constant(e, [1, 2, 2], value) })));
  addBoth("a recurrence over its keys", OVERLAP, (e) => {
    const k = floats(e, 1, 2, 8);
    e.first(recurrence(e, { k, out: e.tensor("f32", [1, 2, 8], { offset: e.offsetOf(k) + 16 }) }));
    e.method.memorySizes[1]! += 16;
  });
}

function layers(): void {
  for (const layer of [-1, 2 ** 20 + 1, 2 ** 31])
    addBoth(`layer ${layer}`, /layer/, (e) => e.first(attention(e, { layer })));
  addBoth("a layer of two sizes", /layer|kv_heads|head_dim|expected/, (e) => {
    e.first(attention(e, { layer: 1 }), attention(e, { layer: 1, headDim: 16, kvHeads: 2 }));
  });
  for (const size of [0, -1, 2 ** 21, 2 ** 31]) {
    addBoth(`${size} heads of keys`, /expected/, (e) => e.first(attention(e, { kvHeads: size })));
    addBoth(`heads of ${size}`, /expected/, (e) => e.first(attention(e, { headDim: size })));
  }
  addBoth("keys without values", /values/, (e) => e.first(attention(e, { v: e.none() })));
  for (const count of [0, 1, 3])
    addBoth(`${count} sinks of 2 heads`, /sinks/, (e) => e.first(attention(e, { sinks: floats(e, count) })));
  addBoth("sinks within the result", OVERLAP, (e) => {
    const out = floats(e, 1, 2, WIDTH);
    e.first(attention(e, { out, sinks: e.tensor("f32", [2], { offset: e.offsetOf(out) }) }));
  });
  addBoth("sinks that are no numbers", null, (e) => e.first(attention(e, { sinks: constant(e, [2], Number.NaN) })));
  addBoth("angles of other rows", /angles/, (e) => {
    const [qkv, out] = [floats(e, 1, 2, 4 * 32), floats(e, 1, 2, WIDTH)];
    const numbers = [e.int(1), e.int(1), e.int(32), e.double(1), e.int(0), e.double(0)];
    const inputs = [qkv, floats(e, 3, 2, 16), handle(e), ...numbers, e.none()];
    e.first(e.call("lowbit::rope_update_and_attend.out", ...inputs, out, out));
  });
}

function texts(): void {
  const attend = (e: ProgramEditor, offsets: number) => {
    const [q, k, v, out] = [0, 1, 2, 3].map(() => floats(e, 1, 4, 32)) as [number, number, number, number];
    return e.call("lowbit::attend_packed.out", q, k, v, offsets, e.int(16), e.double(1), e.none(), e.none(), out, out);
  };
  const pool = (e: ProgramEditor, offsets: number, mode = "mean") => {
    const [x, out] = [floats(e, 1, 4, 32), floats(e, 2, 32)];
    return e.call("lowbit::pool_packed.out", x, offsets, e.value({ kind: "string", value: mode }), out, out);
  };
  const wild = [
    [-1, 2, 4],
    [0, 2, 5],
    [4, 2, 0],
    [0, 2 ** 31, 4],
    [0, 2 ** 40, 2 ** 53],
    [-(2 ** 53), 0, 0],
    [3, 3, 3],
  ];
  for (const values of wild)
    addBoth(`texts at ${values}`, ANY, (e) => {
      // Worked out by the method: nobody has checked them before.
      const offsets = e.tensor("i64", [3]);
      const made = e.call("aten::clone.out", i64(e, ...values), e.none(), offsets, offsets);
      e.first(made, attend(e, offsets), ...["mean", "cls", "lasttoken", "max"].map((mode) => pool(e, offsets, mode)));
    });
  addBoth("offsets of no text", /offsets/, (e) => e.first(attend(e, i64(e, 0))));
  addBoth("a pooling that is none", /mode/, (e) => e.first(pool(e, i64(e, 0, 2, 4), "x")));
  addBoth("offsets within the result", OVERLAP, (e) => {
    const [x, out] = [floats(e, 1, 4, 32), floats(e, 2, 32)];
    const offsets = e.tensor("i64", [3], { offset: e.offsetOf(out) });
    const mode = e.value({ kind: "string", value: "mean" });
    e.first(e.call("lowbit::pool_packed.out", x, offsets, mode, out, out));
  });
  for (const row of [-1, 4, 2 ** 31, 2 ** 40])
    addBoth(`row ${row} of four`, ANY, (e) => {
      const [rows, out] = [e.tensor("i64", [1]), floats(e, 1, 1, 8)];
      const made = e.call("aten::clone.out", i64(e, row), e.none(), rows, rows);
      e.first(made, e.call("lowbit::select_rows.out", floats(e, 1, 4, 8), rows, out, out));
    });
}

/** All programs, each once. */
export function hostileSequences(): readonly HostileProgram[] {
  if (found.length === 0) for (const part of [handles, states, layers, texts]) part();
  return found;
}
