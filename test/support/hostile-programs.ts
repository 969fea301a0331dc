/** Programs that would read or write what is not theirs, or never end, and what must become of each. */

import { checksum } from "../../src/kernels/layout/header.ts";
import { layoutNamed, packWeights } from "../../src/kernels/layout/packed.ts";
import { packEmbedding } from "../../src/kernels/layout/torchao-embedding.ts";
import { addRmsNormOperator } from "../../src/ops/norm.ts";
import { CAPACITY, collector, type HostileProgram, WIDTH } from "./honest-program.ts";
import type { ProgramEditor } from "./program-editor.ts";

const HUGE = 2 ** 31 - 1;
/** Places of a tensor without elements that are allowed. */
const MANY = 2 ** 30;

const { found, add, addBoth } = collector();

const OVERLAP = /writes argument .* over argument .*expected memory apart/;
const CONSTANT = /is written to but/;

/** A constant of ones. */
const ones = (e: ProgramEditor, ...sizes: readonly number[]) => {
  const count = sizes.reduce((product, size) => product * size, 1);
  return e.tensor("f32", sizes, { constant: e.constant(new Float32Array(count).fill(1)) });
};
const i64 = (e: ProgramEditor, ...values: readonly number[]) =>
  e.tensor("i64", [values.length], { constant: e.constant(BigInt64Array.from(values, BigInt)) });

function constants(): void {
  const copyInto = (e: ProgramEditor, target: number) => {
    const source = e.tensor("f32", [WIDTH]);
    return e.call("aten::copy_", target, source, e.bool(false), target);
  };
  add("copy_ into a view of a constant", CONSTANT, (e) => {
    const view = e.tensor("f32", [WIDTH]);
    e.first(e.call("executorch_prim::et_view.default", ones(e, WIDTH), e.ints(WIDTH), view), copyInto(e, view));
  });
  add("copy_ into a view of a view of a constant", CONSTANT, (e) => {
    const [view, second] = [e.tensor("f32", [WIDTH, 1]), e.tensor("f32", [WIDTH])];
    e.first(
      e.call("executorch_prim::et_view.default", ones(e, WIDTH), e.ints(WIDTH, 1), view),
      e.call("executorch_prim::et_view.default", view, e.ints(-1), second),
      copyInto(e, second),
    );
  });
  add("copy_ into a constant", CONSTANT, (e) => e.first(copyInto(e, ones(e, WIDTH))));
  const norm = (e: ProgramEditor, x: number) => {
    const out = e.tensor("f32", [1, 1, WIDTH]);
    const addend = e.tensor("f32", [1, 1, WIDTH]);
    return e.call(addRmsNormOperator.name, x, addend, ones(e, WIDTH), e.double(1e-5), e.int(1), out, out);
  };
  add("a sum in place in a view of a constant", CONSTANT, (e) => {
    const view = e.tensor("f32", [1, 1, WIDTH]);
    e.first(e.call("executorch_prim::et_view.default", ones(e, WIDTH), e.ints(1, 1, WIDTH), view), norm(e, view));
  });
  add("a sum in place in a constant that was moved", CONSTANT, (e) => {
    const moved = e.tensor("f32", [1, 1, WIDTH]);
    const size = e.int(0);
    const constant = ones(e, 1, 1, WIDTH);
    e.first(
      e.call("aten::sym_size.int", constant, size, size),
      { kind: "move", from: constant, to: moved },
      norm(e, moved),
    );
  });
  add("a sum in place in a constant that was moved before it was read", CONSTANT, (e) => {
    const moved = e.tensor("f32", [1, 1, WIDTH]);
    e.first({ kind: "move", from: ones(e, 1, 1, WIDTH), to: moved }, norm(e, moved));
  });
  add("a cache update in a view of a constant", CONSTANT, (e) => {
    const view = e.tensor("f32", [1, 4, 1, WIDTH]);
    const value = e.tensor("f32", [1, 1, 1, WIDTH]);
    const out = e.tensor("f32", [1]);
    e.first(
      e.call("executorch_prim::et_view.default", ones(e, 4, WIDTH), e.ints(1, 4, 1, WIDTH), view),
      e.call("llama::update_cache.out", value, view, e.int(0), out, out),
    );
  });
  add("attention over caches that are views of constants", CONSTANT, (e) => {
    const views = [0, 1].map(() => e.tensor("f32", [1, 8, 1, WIDTH]));
    const [q, k, v, out] = [0, 1, 2, 3].map(() => e.tensor("f32", [1, 1, WIDTH])) as [number, number, number, number];
    const numbers = [e.double(1), e.int(0), e.double(0)];
    e.first(
      ...views.map((view) =>
        e.call("executorch_prim::et_view.default", ones(e, 8 * WIDTH), e.ints(1, 8, 1, WIDTH), view),
      ),
      e.call("lowbit::attention.out", q, k, v, views[0]!, views[1]!, i64(e, 0), ...numbers, out, out),
    );
  });
  add("results into a list with a constant", CONSTANT, (e) => {
    const parts = e.tensors(e.tensor("f32", [1]), ones(e, 1));
    e.first(e.call("aten::split_copy.Tensor_out", ones(e, 2), e.int(1), e.int(0), parts, parts));
  });
  add("a move of a number to a tensor", /moves a value of kind int to one of kind tensor/, (e) => {
    e.first({ kind: "move", from: e.int(1), to: e.tensor("f32", [1]) });
  });
  add("a number to the place of a tensor", /expected a value for its number/, (e) => {
    const tensor = e.tensor("f32", [2]);
    e.first(e.call("aten::sym_size.int", tensor, e.int(0), tensor));
  });
}

const state = (e: ProgramEditor, name: string) =>
  e.method.values.findIndex((value) => value.kind === "tensor" && value.name === name);

function attentionOverlaps(): void {
  const attention = (e: ProgramEditor, places: { position?: number; keys?: number; values?: number; k?: number }) => {
    const [q, v, out] = [0, 1, 2].map(() => e.tensor("f32", [1, 2, WIDTH])) as [number, number, number];
    const k = places.k ?? e.tensor("f32", [1, 2, WIDTH]);
    const caches = [places.keys ?? state(e, "keys"), places.values ?? state(e, "values")] as const;
    const numbers = [e.double(1), e.int(0), e.double(0)];
    const position = places.position ?? e.tensor("i64", [1], { offset: e.offsetOf(out) + 8 });
    return e.call("lowbit::attention.out", q, k, v, ...caches, position, ...numbers, out, out);
  };
  addBoth("a position within the result of attention", OVERLAP, (e) => e.first(attention(e, {})));
  addBoth("a position within the key cache", OVERLAP, (e) => {
    e.first(attention(e, { position: e.tensor("i64", [1], { memory: 2, offset: e.offsetOf(state(e, "keys")) + 64 }) }));
  });
  addBoth("one cache for keys and values", OVERLAP, (e) => {
    e.first(attention(e, { position: i64(e, 0), values: state(e, "keys") }));
  });
  addBoth("caches that overlap by a part", OVERLAP, (e) => {
    const offset = e.offsetOf(state(e, "keys")) + 64;
    e.first(
      attention(e, {
        position: i64(e, 0),
        values: e.tensor("f32", [1, 120, 1, WIDTH], { memory: 2, offset }),
        keys: e.tensor("f32", [1, 120, 1, WIDTH], { memory: 2, offset: offset - 64 }),
      }),
    );
  });
  addBoth("new keys within the key cache", OVERLAP, (e) => {
    const k = e.tensor("f32", [1, 2, WIDTH], { memory: 2, offset: e.offsetOf(state(e, "keys")) + 4 });
    e.first(attention(e, { position: i64(e, 0), k }));
  });
}

function overlaps(): void {
  addBoth("ids within the result of an embedding", OVERLAP, (e) => {
    const out = e.tensor("f32", [1, WIDTH]);
    const ids = e.tensor("i64", [1], { offset: e.offsetOf(out) });
    const [no, more] = [e.bool(false), e.bool(false)];
    e.first(e.call("aten::embedding.out", ones(e, 4, WIDTH), ids, e.int(-1), no, more, out, out));
  });
  addBoth("a sum shifted by a value", OVERLAP, (e) => {
    const a = e.tensor("f32", [WIDTH]);
    const out = e.tensor(
      "f32",
      [WIDTH - 1].map(() => WIDTH),
      { offset: e.offsetOf(a) + 4 },
    );
    e.method.memorySizes[1]! += 4;
    e.first(e.call("aten::add.out", a, ones(e, WIDTH), e.int(1), out, out));
  });
  addBoth("a sum exactly in place", null, (e) => {
    const a = e.tensor("f32", [WIDTH]);
    const out = e.tensor("f32", [WIDTH], { offset: e.offsetOf(a) });
    e.first(e.call("aten::add.out", a, ones(e, WIDTH), e.int(1), out, out));
  });
  addBoth("a softmax over itself", OVERLAP, (e) => {
    const a = e.tensor("f32", [1, WIDTH]);
    const out = e.tensor("f32", [1, WIDTH], { offset: e.offsetOf(a) });
    e.first(e.call("aten::_softmax.out", a, e.int(1), e.bool(false), out, out));
  });
  addBoth("a transposition in place", OVERLAP, (e) => {
    const a = e.tensor("f32", [8, 8]);
    const out = e.tensor("f32", [8, 8], { offset: e.offsetOf(a) });
    e.first(e.call("aten::t_copy.out", a, out, out));
  });
  addBoth("a list joined over one of its tensors", OVERLAP, (e) => {
    const [a, b] = [e.tensor("f32", [4]), e.tensor("f32", [4])];
    const out = e.tensor("f32", [8], { offset: e.offsetOf(a) });
    e.method.memorySizes[1]! += 64;
    e.first(e.call("aten::cat.out", e.tensors(a, b), e.int(0), out, out));
  });
  add("two results at one place", OVERLAP, (e) => {
    const values = e.tensor("f32", [4]);
    const indices = e.tensor("i64", [4], { offset: e.offsetOf(values) });
    e.method.memorySizes[1]! += 64;
    const flags = [e.int(4), e.int(-1), e.bool(true), e.bool(true)];
    e.first(e.call("aten::topk.values", ones(e, 8), ...flags, values, indices, values));
  });
  add("parts of a tensor at one place", OVERLAP, (e) => {
    const part = e.tensor("f32", [1]);
    const parts = e.tensors(part, part);
    e.first(e.call("aten::split_copy.Tensor_out", ones(e, 2), e.int(1), e.int(0), parts, parts));
  });
  add("a copy to where its source lies by a part", OVERLAP, (e) => {
    const a = e.tensor("f32", [WIDTH]);
    const b = e.tensor("f32", [WIDTH], { offset: e.offsetOf(a) + 4 });
    e.method.memorySizes[1]! += 4;
    e.first(e.call("aten::copy_", a, b, e.bool(false), a));
  });
  addBoth("a product over its weights", OVERLAP, (e) => {
    const w = e.tensor("f32", [16, WIDTH]);
    const out = e.tensor("f32", [1, 16], { offset: e.offsetOf(w) + 64 });
    e.first(e.call("aten::linear.out", e.tensor("f32", [1, WIDTH]), w, e.none(), out, out));
  });
}

function packedWeights(): void {
  const [n, k, groupSize] = [64, 256, 32];
  const shape = { bits: 4, n, k, groupSize, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;
  const filled = {
    ...shape,
    qvals: new Int8Array(n * k).fill(1),
    scales: new Float32Array((n * k) / groupSize).fill(1),
    zeros: null,
    levels: null,
  };
  for (const layout of ["panel16", "panel32", "torchao_universal"])
    for (const size of [4096, 1 << 22])
      add(
        `weights in ${layout} whose header changes to ${size} rows`,
        layout === "torchao_universal" ? /n 64|bytes/ : /packed weights: expected \d+ bytes but found \d+/,
        (e) => {
          const good = packWeights(filled, null, layoutNamed(layout));
          const bad = good.slice();
          const header = new DataView(bad.buffer);
          if (layout === "torchao_universal") header.setInt32(16, 1, true);
          else {
            header.setUint32(16, size, true);
            header.setUint32(60, checksum(bad.subarray(0, 60)), true);
          }
          const [first, second] = [good, bad].map((bytes) =>
            e.tensor("u8", [bytes.length], { constant: e.constant(bytes) }),
          ) as [number, number];
          const packed = e.tensor("u8", [good.length]);
          const again = e.tensor("u8", [good.length], { offset: e.offsetOf(packed) });
          const sizes = [groupSize, n, k].map((value) => e.int(value));
          const linear = () => {
            const [x, out] = [e.tensor("f32", [1, 1, k]), e.tensor("f32", [1, 1, n])];
            return e.call("torchao::_linear_8bit_act_4bit_weight.out", x, packed, ...sizes, out, out);
          };
          const none = e.none();
          e.first(
            e.call("aten::clone.out", first, none, packed, packed),
            linear(),
            e.call("aten::clone.out", second, none, again, again),
            linear(),
            e.freeNothing(),
          );
        },
      );
  addBoth("weights that are written by their own product", /writes argument|packed weights/, (e) => {
    const good = packWeights(filled, null, layoutNamed("panel16"));
    const packed = e.tensor("u8", [good.length]);
    const x = e.tensor("f32", [1, 1, k]);
    const out = e.tensor("f32", [1, 1, n], { offset: e.offsetOf(packed) });
    const sizes = [groupSize, n, k].map((value) => e.int(value));
    e.first(e.call("torchao::_linear_8bit_act_4bit_weight.out", x, packed, ...sizes, out, out));
  });
  addBoth("weights at an odd place", /multiple of 4 bytes|packed weights/, (e) => {
    const good = packWeights(filled, null, layoutNamed("panel16"));
    const room = e.tensor("u8", [good.length + 8]);
    const packed = e.tensor("u8", [good.length], { offset: e.offsetOf(room) + 1 });
    const [x, out] = [e.tensor("f32", [1, 1, k]), e.tensor("f32", [1, 1, n])];
    const sizes = [groupSize, n, k].map((value) => e.int(value));
    e.first(e.call("torchao::_linear_8bit_act_4bit_weight.out", x, packed, ...sizes, out, out));
  });
  add("a packed embedding whose header is written by the program", /packed embedding/, (e) => {
    const table = { bits: 4, rows: 4, dim: 64 };
    const bytes = packEmbedding(new Int8Array(256), table);
    const bad = bytes.slice().fill(255, 12, 16);
    const packed = e.tensor("u8", [bytes.length]);
    const scales = ones(e, 4, 1);
    const zeros = e.tensor("i8", [4, 1], { constant: e.constant(new Int8Array(4)) });
    const call = () => {
      const out = e.tensor("f32", [1, 64]);
      const sizes = [e.int(4), e.int(64)];
      return e.call("torchao::_embedding_4bit.out", packed, ...sizes, scales, zeros, i64(e, 3), out, out);
    };
    const none = e.none();
    const copies = [bytes, bad].map((data) => e.tensor("u8", [data.length], { constant: e.constant(data) }));
    const [first, second] = copies.map((copy) => e.call("aten::clone.out", copy, none, packed, packed));
    e.first(first!, call(), second!, call(), e.freeNothing());
  });
}

/** Values that the method works out itself, which nobody has checked before. */
function computedIndices(): void {
  const later = (e: ProgramEditor, ...values: readonly number[]) => {
    const ids = e.tensor("i64", [values.length]);
    return { ids, made: e.call("aten::clone.out", i64(e, ...values), e.none(), ids, ids) };
  };
  for (const id of [-1, 4, 2 ** 31, 2 ** 40, -(2 ** 52)]) {
    addBoth(`an embedding of id ${id}`, ANY, (e) => {
      const { ids, made } = later(e, id);
      const out = e.tensor("f32", [1, WIDTH]);
      const [no, more] = [e.bool(false), e.bool(false)];
      e.first(made, e.call("aten::embedding.out", ones(e, 4, WIDTH), ids, e.int(-1), no, more, out, out));
    });
    add(`a gather of index ${id}`, /out of range/, (e) => {
      const { ids, made } = later(e, id);
      const out = e.tensor("f32", [1]);
      e.first(made, e.call("aten::gather.out", ones(e, 4), e.int(0), ids, e.bool(false), out, out));
    });
  }
  for (const position of [-1, CAPACITY - 1, CAPACITY, 2 ** 32, 2 ** 40])
    addBoth(`attention at position ${position}`, ANY, (e) => {
      const { ids, made } = later(e, position);
      const [q, k, v, out] = [0, 1, 2, 3].map(() => e.tensor("f32", [1, 2, WIDTH])) as [number, number, number, number];
      const caches = ["keys", "values"].map((name) => state(e, name));
      const numbers = [e.double(1), e.int(0), e.double(0)];
      e.first(made, e.call("lowbit::attention.out", q, k, v, ...caches, ids, ...numbers, out, out));
    });
}

/** An error, or results of NaN. */
const ANY = /(?:)/;

function endless(): void {
  const at = (e: ProgramEditor, dtype: "f32", ...sizes: readonly number[]) => e.tensor(dtype, sizes, { offset: 0 });
  addBoth("index_select of rows of nothing", null, (e) => {
    const out = at(e, "f32", 2 ** 20, 1000, 0);
    const ids = i64(e, ...new Array(1000).fill(0));
    e.first(e.call("aten::index_select.out", at(e, "f32", 2 ** 20, 1, 0), e.int(1), ids, out, out));
  });
  addBoth("select_copy of blocks of nothing", /tensor without elements/, (e) => {
    const out = at(e, "f32", HUGE, HUGE, 0);
    e.first(e.call("aten::select_copy.int_out", at(e, "f32", HUGE, HUGE, 1, 0), e.int(2), e.int(0), out, out));
  });
  addBoth("a clone of more rows of nothing than there are", /tensor without elements/, (e) => {
    const out = at(e, "f32", HUGE, 1, 0);
    e.first(e.call("aten::clone.out", at(e, "f32", HUGE, 1, 0), e.none(), out, out));
  });
  addBoth("select_copy of fewer blocks of nothing", null, (e) => {
    const out = at(e, "f32", MANY, 0);
    e.first(e.call("aten::select_copy.int_out", at(e, "f32", MANY, 1, 0), e.int(1), e.int(0), out, out));
  });
  addBoth("clone of rows of nothing", null, (e) => {
    const out = at(e, "f32", 2 ** 20, 1024, 0);
    e.first(e.call("aten::clone.out", at(e, "f32", 2 ** 20, 1024, 0), e.none(), out, out));
  });
  addBoth("cat of rows of nothing", null, (e) => {
    const [x, out] = [at(e, "f32", MANY / 2, 1, 0), at(e, "f32", MANY / 2, 2, 0)];
    e.first(e.call("aten::cat.out", e.tensors(x, x), e.int(1), out, out));
  });
  addBoth("softmax of rows of nothing", null, (e) => {
    const out = at(e, "f32", MANY, 0);
    e.first(e.call("aten::_softmax.out", at(e, "f32", MANY, 0), e.int(1), e.bool(false), out, out));
  });
  addBoth("a sum over rows of nothing", null, (e) => {
    const out = e.tensor("f32", [1]);
    e.first(
      e.call("aten::sum.IntList_out", at(e, "f32", 2 ** 20, 4, 0), e.ints(0, 1), e.bool(false), e.none(), out, out),
    );
  });
  addBoth("a sum over all dimensions, one of nothing", null, (e) => {
    const out = e.tensor("f32", []);
    e.first(e.call("aten::sum.IntList_out", at(e, "f32", 2 ** 20, 4, 0), e.none(), e.bool(false), e.none(), out, out));
  });
  addBoth("a linear layer of no inputs", null, (e) => {
    const out = e.tensor("f32", [1, 4, 16]);
    e.first(e.call("aten::linear.out", at(e, "f32", 1, 4, 0), at(e, "f32", 16, 0), e.none(), out, out));
  });
  addBoth("an add of nothing, many times", null, (e) => {
    const out = at(e, "f32", MANY, 0);
    e.first(e.call("aten::add.out", at(e, "f32", MANY, 0), at(e, "f32", MANY, 0), e.int(1), out, out));
  });
  add("unbind of nothing into parts without end", /gives 1073741824 tensors but the program planned 1/, (e) => {
    const parts = e.tensors(at(e, "f32", 0));
    e.first(e.call("aten::unbind_copy.int_out", at(e, "f32", MANY, 0), e.int(0), parts, parts));
  });
  add("split of nothing into parts without end", /gives 1073741824 tensors but the program planned 1/, (e) => {
    const parts = e.tensors(at(e, "f32", 1, 0));
    e.first(e.call("aten::split_copy.Tensor_out", at(e, "f32", MANY, 0), e.int(1), e.int(0), parts, parts));
  });
  add("a jump to itself", /does not end/, (e) => {
    e.method.instructions = [{ kind: "jumpFalse", condition: e.bool(false), destination: 0 }];
  });
  add("a loop of calls", /does not end/, (e) => {
    const sum = e.int(0);
    const add = e.call("executorch_prim::add.Scalar", sum, e.int(1), sum);
    e.method.instructions = [add, { kind: "jumpFalse", condition: e.bool(false), destination: 0 }];
  });
}

/** Numbers that would be sizes. */
function sizes(): void {
  const numbers = [Number.NaN, Number.POSITIVE_INFINITY, 1e300, -1, 0.5];
  for (const number of numbers) {
    addBoth(`arange to ${number}`, number === 0.5 ? null : /argument end|does not fit|expected/, (e) => {
      const out = e.tensor("i64", [1]);
      e.first(e.call("aten::arange.out", e.double(number), out, out));
    });
    add(`a size worked out as ${number}`, /argument size|does not fit|expected/, (e) => {
      const [size, out] = [e.int(1), e.tensor("f32", [1])];
      const list = e.value({ kind: "intList", items: [size] });
      e.first(
        e.call("executorch_prim::mul.Scalar", e.double(number), e.double(1), size),
        e.call("aten::full.out", list, e.double(1), out, out),
      );
    });
  }
  addBoth("a full tensor of sizes whose product is beyond numbers", /fewer than 2\^53|expected/, (e) => {
    const out = e.tensor("f32", [1]);
    const size = new Array(40).fill(2 ** 52);
    e.first(e.call("aten::full.out", e.ints(...size, 0), e.double(1), out, out));
  });
  addBoth("a repeat without end", /fewer than 2\^53|expected|does not fit/, (e) => {
    const out = e.tensor("f32", [1]);
    e.first(e.call("aten::repeat.out", ones(e, 1), e.ints(2 ** 40, 2 ** 40), out, out));
  });
  addBoth("a slice from half a place", /whole number|expected/, (e) => {
    const out = e.tensor("f32", [2]);
    const bounds = [e.int(0), e.double(0.5), e.double(2.5), e.int(1)];
    e.first(e.call("aten::slice_copy.Tensor_out", ones(e, 4), ...bounds, out, out));
  });
  add("scales of a scalar", /expected rows but found a scalar/, (e) => {
    const [scale, zero] = [e.tensor("f64", [1]), e.tensor("i64", [1])];
    const name = "quantized_decomposed::choose_qparams_per_token_asymmetric.out";
    e.first(e.call(name, ones(e), e.int(1), scale, zero, scale));
  });
  add("scratch of more than can be had", /bytes/, (e) => {
    e.method.memorySizes[1] = 2 ** 52;
  });
  add("state of more than can be had", /bytes/, (e) => {
    e.method.memorySizes[2] = 2 ** 52;
  });
}

/** What honest programs do, which must go on working. */
function honest(): void {
  const results = (e: ProgramEditor, ...outputs: readonly number[]) => {
    e.method.outputs = [...outputs];
  };
  addBoth("cat of a constant and a state that nobody read before", null, (e) => {
    const state = e.tensor("f32", [1, 2], { memory: 2 });
    const out = e.tensor("f32", [1, 4]);
    e.first(e.call("aten::cat.out", e.tensors(ones(e, 1, 2), state), e.int(1), out, out));
    results(e, out);
  });
  addBoth("custom_sdpa over constant keys and values", null, (e) => {
    const [q, out] = [e.tensor("f32", [1, 4, 2, WIDTH]), e.tensor("f32", [1, 4, 2, WIDTH])];
    const numbers = [e.int(3), e.none(), e.double(0), e.bool(true), e.none()];
    e.first(
      e.call("llama::custom_sdpa.out", q, ones(e, 1, 16, 1, WIDTH), ones(e, 1, 16, 1, WIDTH), ...numbers, out, out),
    );
    results(e, out);
  });
}

/** All programs, each once. */
export function hostilePrograms(): readonly HostileProgram[] {
  if (found.length === 0)
    for (const part of [constants, attentionOverlaps, overlaps, packedWeights, computedIndices, endless, sizes, honest])
      part();
  return found;
}
