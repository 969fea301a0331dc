/** Mixtures of experts that would read or write what is not theirs, or never end, and what must become of each. */

import { routingLength } from "../../src/kernels/families/experts/routing.ts";
import { checksum } from "../../src/kernels/layout/header.ts";
import { layoutNamed, packWeights } from "../../src/kernels/layout/packed.ts";
import { collector, type HostileProgram } from "./honest-program.ts";
import type { ProgramEditor } from "./program-editor.ts";

const { found, add, addBoth } = collector();

const OVERLAP = /writes argument .* over argument .*expected memory apart/;
const CONSTANT = /is written to but/;
/** An error, or results of NaN. */
const ANY = /(?:)/;

const [ROWS, EXPERTS, TOP_K, N, K, GROUP] = [3, 4, 2, 64, 128, 32];
const PLACES = ROWS * TOP_K;

const spec = { bits: 4, n: N, k: K, groupSize: GROUP, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;

/** The packed weights of all experts, of which one may be changed. */
function packedExperts(layout: string, expert = 0, change: (part: Uint8Array, view: DataView) => void = () => {}) {
  const groups = (N * K) / GROUP;
  const values = { qvals: new Int8Array(N * K).fill(1), scales: new Float32Array(groups).fill(1) };
  const good = packWeights({ ...spec, ...values, zeros: null, levels: null }, null, layoutNamed(layout));
  const all = new Uint8Array(EXPERTS * good.length);
  for (let i = 0; i < EXPERTS; i++) all.set(good, i * good.length);
  const part = all.subarray(expert * good.length, (expert + 1) * good.length);
  change(part, new DataView(part.buffer, part.byteOffset, part.length));
  return all;
}

/** Puts the checksum of a header right. */
function sign(part: Uint8Array): void {
  new DataView(part.buffer, part.byteOffset).setUint32(60, checksum(part.subarray(0, 60)), true);
}

/** A routing that sends each place to an expert in turn, but for values that are put over it. */
function routingOf(changes: readonly (readonly [at: number, value: number])[] = []): Int32Array {
  const routing = new Int32Array(routingLength(ROWS, EXPERTS, TOP_K));
  routing.set([0, 2, 4, 6, 6, 0, 1, 2, 0, 1, 2, 0, 2, 4, 1, 3, 5]);
  for (const [at, value] of changes) routing[at] = value;
  return routing;
}

const bytes = (e: ProgramEditor, data: Uint8Array) => e.tensor("u8", [data.length], { constant: e.constant(data) });
const routingAt = (e: ProgramEditor, routing = routingOf()) =>
  e.tensor("i32", [routing.length], { constant: e.constant(routing) });
const floats = (e: ProgramEditor, ...sizes: readonly number[]) => e.tensor("f32", sizes);

interface Sizes {
  readonly experts?: number;
  readonly topK?: number;
  readonly group?: number;
  readonly n?: number;
  readonly k?: number;
}

/** A call of the linear layer of packed weights. */
function linear(e: ProgramEditor, weights: number, routing: number, sizes: Sizes & { x?: number; out?: number } = {}) {
  const { experts = EXPERTS, topK = TOP_K, group = GROUP, n = N, k = K } = sizes;
  const { x = floats(e, 1, PLACES, k), out = floats(e, 1, PLACES, n) } = sizes;
  const numbers = [experts, topK, group, n, k].map((value) => e.int(value));
  return e.call("lowbit::expert_linear_8bit_act.out", x, weights, routing, ...numbers, out, out);
}

const layouts = ["panel16", "panel32", "torchao_universal"];

function packedWeights(): void {
  for (const layout of layouts) {
    for (const sizes of [{ n: N - 16 }, { n: 4 * N }, { k: 2 * K }, { group: K }, { experts: 2 }] as readonly Sizes[])
      addBoth(
        `experts in ${layout} that a second call takes for others: ${JSON.stringify(sizes)}`,
        /packed.weights/,
        (e) => {
          const weights = bytes(e, packedExperts(layout));
          const { experts = EXPERTS } = sizes;
          const others = new Int32Array(routingLength(ROWS, experts, TOP_K));
          e.first(linear(e, weights, routingAt(e)), linear(e, weights, routingAt(e, others), sizes));
        },
      );
    add(`experts in ${layout} whose headers change between calls`, /packed weights/, (e) => {
      const good = packedExperts(layout);
      const bad = packedExperts(layout, 0, (part, view) => {
        if (layout === "torchao_universal") view.setInt32(12, 1, true);
        else view.setUint32(16, 1 << 20, true);
        sign(part);
      });
      const [first, second] = [bytes(e, good), bytes(e, bad)];
      const [weights, none, routing] = [e.tensor("u8", [good.length]), e.none(), routingAt(e)];
      const copy = (from: number) => e.call("aten::clone.out", from, none, weights, weights);
      e.first(copy(first), linear(e, weights, routing), copy(second), linear(e, weights, routing), e.freeNothing());
    });
  }
  addBoth("weights of experts that are written by their own product", OVERLAP, (e) => {
    const weights = e.tensor("u8", [packedExperts("panel16").length]);
    const out = e.tensor("f32", [1, PLACES, N], { offset: e.offsetOf(weights) });
    e.first(linear(e, weights, routingAt(e), { out }));
  });
  addBoth("weights that no number of experts divides", /equal parts|packed weights/, (e) => {
    const weights = packedExperts("panel16");
    e.first(linear(e, bytes(e, weights.subarray(4)), routingAt(e)));
  });
}

/** One matrix that is stored in another way than the first. */
function otherForms(): void {
  const headers: readonly (readonly [string, (part: Uint8Array, view: DataView) => void])[] = [
    ["of 8 bits", (_, view) => view.setUint8(8, 8)],
    ["of 1 bit", (_, view) => view.setUint8(8, 1)],
    ["of 0 bits", (_, view) => view.setUint8(8, 0)],
    ["with zero points", (_, view) => view.setUint16(10, 1, true)],
    ["with scales of another type", (_, view) => view.setUint8(9, 2)],
    ["of another layout", (_, view) => view.setUint16(6, 2, true)],
    ["of 2^31 rows", (_, view) => view.setUint32(16, 2 ** 31, true)],
    ["of 2^31 columns", (_, view) => view.setUint32(20, 2 ** 31, true)],
    ["of groups of 1", (_, view) => view.setUint32(24, 1, true)],
    ["of no groups", (_, view) => view.setUint32(24, 0, true)],
    ["of zeros", (part) => part.fill(0, 0, 64)],
  ];
  for (const layout of ["panel16", "panel32"])
    for (const [what, change] of headers)
      addBoth(`an expert in ${layout} whose header says it is ${what}`, /matrix 1 of 4: packed weights/, (e) => {
        const weights = packedExperts(layout, 1, (part, view) => {
          change(part, view);
          sign(part);
        });
        e.first(linear(e, bytes(e, weights), routingAt(e)));
      });
  // As many bytes as those of float32 scales.
  addBoth(
    "an expert with minima among those without",
    /matrix 2 of 4: packed weights: .*f32 scales.*f16.*minima/,
    (e) => {
      const groups = (N * K) / GROUP;
      const floats = { scales: new Float32Array(groups).fill(1), minima: new Float32Array(groups).fill(-1) };
      const other = { ...spec, hasMinima: true, scaleDType: "f16", zeros: null, levels: null, ...floats } as const;
      const bytesOfOther = packWeights({ ...other, qvals: new Int8Array(N * K) }, null, layoutNamed("panel16"));
      e.first(
        linear(
          e,
          bytes(
            e,
            packedExperts("panel16", 2, (part) => part.set(bytesOfOther)),
          ),
          routingAt(e),
        ),
      );
    },
  );
  for (let at = 0; at < 32; at++)
    add(`an expert in TorchAO's layout whose header's byte ${at} is another`, /matrix 3 of 4: packed weights/, (e) => {
      const weights = packedExperts("torchao_universal", 3, (part) => {
        part[at]! ^= 1;
      });
      // The last one has the last places.
      const routing = routingOf([[3, 4]]);
      e.first(linear(e, bytes(e, weights), routingAt(e, routing)));
    });
}

function floatWeights(): void {
  const call = (e: ProgramEditor, weight: number, bias: number, routing: number, x: number, out: number) =>
    e.call("lowbit::expert_linear.out", x, weight, bias, routing, e.int(EXPERTS), e.int(TOP_K), out, out);
  const sizes = [EXPERTS, 4, 8] as const;
  const parts = (e: ProgramEditor) => [floats(e, 1, PLACES, 8), floats(e, 1, PLACES, 4)] as const;
  addBoth("a result of experts over their input", OVERLAP, (e) => {
    const x = floats(e, 1, PLACES, 8);
    const out = e.tensor("f32", [1, PLACES, 4], { offset: e.offsetOf(x) });
    e.first(call(e, floats(e, ...sizes), e.none(), routingAt(e), x, out));
  });
  addBoth("a routing within the result of experts", OVERLAP, (e) => {
    const [x, out] = parts(e);
    const routing = e.tensor("i32", [routingOf().length], { offset: e.offsetOf(out) });
    e.first(call(e, floats(e, ...sizes), e.none(), routing, x, out));
  });
  addBoth("biases of fewer experts", /bias/, (e) => {
    const [x, out] = parts(e);
    e.first(call(e, floats(e, ...sizes), floats(e, EXPERTS - 1, 4), routingAt(e), x, out));
  });
  addBoth("weights of fewer experts", /weight/, (e) => {
    const [x, out] = parts(e);
    e.first(call(e, floats(e, EXPERTS - 1, 4, 8), e.none(), routingAt(e), x, out));
  });
  const wild = [-1, 7, 2 ** 31 - 1, -(2 ** 31)];
  for (const value of wild)
    for (const at of [0, 1, 3, 4, 5, 10, 11, 16])
      addBoth(`a routing whose value ${at} is ${value}`, ANY, (e) => {
        const [x, out] = parts(e);
        const [rows, sums] = [floats(e, 1, PLACES, 8), floats(e, 1, ROWS, 4)];
        const routing = routingAt(e, routingOf([[at, value]]));
        const counts = [e.int(EXPERTS), e.int(TOP_K)];
        e.first(
          e.call("lowbit::expert_rows.out", floats(e, 1, ROWS, 8), routing, ...counts, rows, rows),
          call(e, floats(e, ...sizes), e.none(), routing, x, out),
          e.call("lowbit::combine_experts.out", out, routing, ...counts, sums, sums),
        );
      });
}

function routers(): void {
  const route = (e: ProgramEditor, logits: number, topK: number, length: number, out = e.tensor("i32", [length])) => {
    const numbers = [
      e.int(topK),
      e.value({ kind: "string", value: "softmax" }),
      e.bool(true),
      e.double(0),
      e.double(1),
    ];
    return e.call("lowbit::route.out", logits, e.none(), e.none(), ...numbers, out, out);
  };
  for (const [what, value] of [
    ["NaN", Number.NaN],
    ["infinity", Number.POSITIVE_INFINITY],
    ["-infinity", Number.NEGATIVE_INFINITY],
  ] as const)
    addBoth(`logits of ${what}`, null, (e) => {
      const logits = new Float32Array(ROWS * EXPERTS).fill(value);
      const given = e.tensor("f32", [1, ROWS, EXPERTS], { constant: e.constant(logits) });
      const out = e.tensor("i32", [routingLength(ROWS, EXPERTS, TOP_K)]);
      const rows = floats(e, 1, PLACES, 8);
      const counts = [e.int(EXPERTS), e.int(TOP_K)];
      const copy = e.call("lowbit::expert_rows.out", floats(e, 1, ROWS, 8), out, ...counts, rows, rows);
      e.first(route(e, given, TOP_K, 0, out), copy);
    });
  for (const topK of [0, -1, EXPERTS + 1, 2 ** 31, 2 ** 53])
    addBoth(`${topK} of ${EXPERTS} experts`, /top_k/, (e) => {
      e.first(route(e, floats(e, 1, ROWS, EXPERTS), topK, routingLength(ROWS, EXPERTS, TOP_K)));
    });
  addBoth("most of 65536 experts", /top_k.*at most 64 of 65536/, (e) => {
    e.first(route(e, floats(e, 1, 1, 2 ** 16), 2 ** 15, routingLength(1, 2 ** 16, 2 ** 15)));
  });
  addBoth("more experts than there may be", /logits/, (e) => {
    e.first(route(e, floats(e, 1, 1, 2 ** 17), 1, routingLength(1, 2 ** 17, 1)));
  });
  addBoth("no experts", /logits/, (e) => e.first(route(e, floats(e, 1, ROWS, 0), 1, 10)));
  addBoth("no rows of experts", null, (e) => e.first(route(e, floats(e, 1, 0, EXPERTS), 1, EXPERTS + 1)));
  addBoth("a routing into a constant", CONSTANT, (e) => {
    e.first(route(e, floats(e, 1, ROWS, EXPERTS), TOP_K, 0, routingAt(e)));
  });
  addBoth("a routing over its logits", OVERLAP, (e) => {
    const out = e.tensor("i32", [routingLength(ROWS, EXPERTS, TOP_K)]);
    e.first(route(e, e.tensor("f32", [1, ROWS, EXPERTS], { offset: e.offsetOf(out) }), TOP_K, 0, out));
  });
  addBoth("a routing of fewer rows", /routing/, (e) => {
    const rows = floats(e, 1, PLACES + TOP_K, 8);
    const counts = [e.int(EXPERTS), e.int(TOP_K)];
    e.first(e.call("lowbit::expert_rows.out", floats(e, 1, ROWS + 1, 8), routingAt(e), ...counts, rows, rows));
  });
  for (const experts of [0, 2 ** 16 + 1, 2 ** 31])
    addBoth(`a routing of ${experts} experts`, /experts/, (e) => {
      const rows = floats(e, 1, PLACES, 8);
      const counts = [e.int(experts), e.int(TOP_K)];
      e.first(e.call("lowbit::expert_rows.out", floats(e, 1, ROWS, 8), routingAt(e), ...counts, rows, rows));
    });
}

/** All programs, each once. */
export function hostileExperts(): readonly HostileProgram[] {
  if (found.length === 0) for (const part of [packedWeights, otherForms, floatWeights, routers]) part();
  return found;
}
