/**
 * Linear layers with a matrix for each expert. The number of rows of each expert is known only at run time: one tile makes a
 * step for each expert that has rows, with the arguments of a linear kernel for that number; then all threads take tiles of
 * these steps until none are left. Phases of linear kernels before the product, such as quantizing rows, run once for all rows.
 */

import { UnsupportedError } from "../../../../errors.ts";
import type { Kernel } from "../../../contract.ts";
import {
  call,
  type Expr,
  type FunctionCode,
  type Local,
  leave,
  when,
  whileDo,
  widen,
} from "../../../wasm/assembler/expression.ts";
import { f32, float, i32, i64, int, ptr, size } from "../../../wasm/assembler/instructions.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { panelShape } from "../../../wasm/generate/packed-panels.ts";
import { noSequences, plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import {
  ArgumentBlock,
  type KernelCode,
  kernelFunction,
  type kernelParams,
  type Placement,
  type RowProducts,
  type WasmPhase,
  type WasmStep,
} from "../../../wasm/kernel-code.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../../linear/fields.ts";
import type { ExpertLinearArgs } from "../fields.ts";

/** Shared state at the start of the scratch memory: the next tile to take, and the number of steps. */
const state = { nextTile: 0, steps: 64, bytes: 128 } as const;
/**
 * Layout of a step: the end of its tiles in the order of all tiles, the index of its kernel among the call's, and its
 * arguments.
 */
const step = { end: 0, kernel: 4, args: 8, bytes: 8 + 8 * 16 } as const;
/**
 * Layout of a kernel's entry: its least number of rows, its tiles per matrix, its number of arguments, and for each argument
 * the four numbers that it is computed from.
 */
const entry = { from: 0, tiles: 4, count: 8, numbers: 16, numberBytes: 32 } as const;

/** One way to multiply an expert's rows: a kernel that serves a least number of rows. */
interface Way {
  readonly from: number;
  /** Phases that run once for all rows. */
  readonly before: readonly WasmPhase[];
  readonly product: WasmPhase;
  readonly slopes: RowProducts;
  /** Number of rows that `product` was made for. */
  readonly rows: number;
}

/** Makes the step of a kernel, by its index among the choices, for `m` rows and one expert's matrix. */
type StepOf = (kernel: number, m: number) => WasmStep;

/** Addresses of a kernel's scratch memory: that filled by its phases before the product, and that of its threads. */
interface KernelScratch {
  readonly shared: number;
  readonly threads: number;
}

/**
 * The ways of a call, for all kernels that it may choose. A kernel whose code is for one number of rows has a way for each
 * number.
 */
function waysOf<A>(
  { matrices, places }: ExpertLinearArgs<A>,
  scratch: readonly KernelScratch[],
  stepOf: StepOf,
): Way[] {
  return matrices.choices.flatMap(({ from, kernel }, i) => {
    const way = (least: number, rows: number): Way => {
      const { phases, products } = stepOf(i, rows);
      const before = phases.slice(0, -1);
      const last = phases.at(-1)!;
      // Phases before the product run once, so they must not depend on the number of rows.
      const isShared = before.length === 0 || products?.rows;
      if (!products || !isShared || last.args.length > step.bytes - step.args)
        throw new UnsupportedError(`${kernel.name} cannot multiply the rows of experts`);
      const { shared, threads } = scratch[i]!;
      const withScratch = moved(last.args, products.threadScratch, threads - shared - products.sharedBytes);
      return { from: least, before, product: { ...last, args: withScratch }, slopes: products, rows };
    };
    if (stepOf(i, places).products?.rows) return [way(from, places)];
    const next = matrices.choices[i + 1]?.from ?? from;
    return Array.from({ length: next - from }, (_, more) => way(from + more, from + more));
  });
}

const keyOf = ({ before }: Pick<Way, "before">) => before.map(({ code }) => code.key).join();

/** args + times * slopes, for each 8-byte number. */
function moved(args: Uint8Array, slopes: Uint8Array, times: number): Uint8Array {
  const [from, by] = [args, slopes].map(({ buffer, byteOffset, length }) => new DataView(buffer, byteOffset, length));
  const result = new DataView(new ArrayBuffer(args.length));
  for (let at = 0; at < args.length; at += 8)
    result.setBigInt64(at, from!.getBigInt64(at, true) + BigInt(times) * by!.getBigInt64(at, true), true);
  return new Uint8Array(result.buffer);
}

/**
 * Addresses of each kernel's scratch memory, and its end. Kernels with the same phases before the product share what those
 * fill. Thread scratch is separate for each kernel, since threads may run different kernels at the same time, with different
 * sizes.
 */
function scratchOf<A>(
  { matrices, places: rows }: ExpertLinearArgs<A>,
  template: Template<A>,
  threads: number,
  start: number,
): { kernels: KernelScratch[]; end: number } {
  let end = start;
  const take = (bytes: number) => {
    const at = end;
    end += Math.ceil(bytes / 64) * 64;
    return at;
  };
  const known = new Map<string, number>();
  const kernels = matrices.choices.map(({ kernel }) => {
    const args = template(rows);
    const { phases, products } = wasmStep(kernel, args, {
      read: () => 0,
      write: () => 0,
      ...noSequences,
      scratch: 0,
      threads,
    });
    const sharedBytes = products?.sharedBytes ?? 0;
    const key = keyOf({ before: phases.slice(0, -1) });
    const shared = known.get(key) ?? take(sharedBytes);
    known.set(key, shared);
    return { shared, threads: take((kernel.scratchBytes?.(args, threads) ?? 0) - sharedBytes) };
  });
  return { kernels, end };
}

function wasmStep<A>(kernel: Kernel<A>, args: A, place: Placement): WasmStep {
  const encoded = kernel.encode?.(args, new Uint8Array(0));
  if (encoded?.target !== "wasm") throw new UnsupportedError(`${kernel.name} cannot be called by WebAssembly`);
  return encoded.prepare(place);
}

const stepsBlock = new ArgumentBlock({
  starts: "ptr",
  places: "i32",
  experts: "i32",
  n: "i32",
  y: "ptr",
  state: "ptr",
  steps: "ptr",
  ways: "i32",
  wayBytes: "i32",
});
/** Byte offset of the ways in the arguments. */
const WAYS = 8 * Object.keys(stepsBlock.fields).length;

/** Arguments of the phase that makes steps: the block, followed by the numbers of all ways. */
function stepsArguments(
  values: Omit<Parameters<typeof stepsBlock.encode>[0], "ways" | "wayBytes">,
  ways: readonly Way[],
): Uint8Array {
  const fields = Math.max(...ways.map(({ product }) => product.args.length / 8));
  const wayBytes = entry.numbers + entry.numberBytes * fields;
  const bytes = new Uint8Array(WAYS + wayBytes * ways.length);
  bytes.set(stepsBlock.encode({ ...values, ways: ways.length, wayBytes }));
  const view = new DataView(bytes.buffer);
  for (const [i, { from, product, slopes, rows }] of ways.entries()) {
    const at = WAYS + i * wayBytes;
    view.setInt32(at + entry.from, from, true);
    view.setInt32(at + entry.tiles, product.tiles, true);
    view.setInt32(at + entry.count, product.args.length / 8, true);
    const parts = [product.args, slopes.matrix, slopes.row, slopes.rows ?? new Uint8Array(product.args.length)];
    const [base, , , each] = parts.map((part) => new DataView(part.buffer, part.byteOffset, part.length));
    for (let field = 0; field < product.args.length / 8; field++) {
      const number = at + entry.numbers + entry.numberBytes * field;
      for (const [j, part] of parts.entries()) bytes.set(part.subarray(8 * field, 8 * field + 8), number + 8 * j);
      // The argument for 0 rows; the rows are counted at run time.
      const none = base!.getBigInt64(8 * field, true) - BigInt(rows) * each!.getBigInt64(8 * field, true);
      view.setBigInt64(number, slopes.rows ? none : base!.getBigInt64(8 * field, true), true);
    }
  }
  return bytes;
}

/**
 * Makes a step for each expert that has rows, and writes NaN where no expert does. The starts of a routing may be any values.
 */
const stepsCode: KernelCode = {
  key: "expert_steps",
  build: () => [
    kernelFunction("expert_steps", stepsBlock, (fields, { args }, scope) => {
      const { starts, places, experts, n, y, steps, ways, wayBytes } = fields;
      const locals = ["expert", "first", "end", "rows", "i", "kernel", "tiles", "count"].map((name) =>
        scope.local("i32", name),
      );
      const [expert, first, end, rows, i, kernel, tiles, count] = locals as [
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
        Local<"i32">,
      ];
      const [at, way, number, to] = ["at", "way", "number", "to"].map((name) => scope.local("ptr", name)) as [
        Local<"ptr">,
        Local<"ptr">,
        Local<"ptr">,
        Local<"ptr">,
      ];
      const times = (offset: number, count: Expr<"i32">) => i64.mul(i64.load(number, offset), i64.extend_i32_u(count));
      const sum = [times(8, expert), times(16, first), times(24, rows)].reduce<Expr<"i64">>(
        (total, part) => i64.add(total, part),
        i64.load(number),
      );
      const wayAt = (index: Expr<"i32">) => ptr.add(args, ptr.add(size(WAYS), widen(i32.mul(index, wayBytes))));
      const makeStep = [
        rows.set(i32.sub(end, first)),
        kernel.set(int(0)),
        forRange(i, int(1), ways, [when(i32.ge_u(rows, i32.load(wayAt(i), entry.from)), [kernel.set(i)])]),
        way.set(wayAt(kernel)),
        tiles.set(i32.add(tiles, i32.load(way, entry.tiles))),
        i32.store(at, tiles, step.end),
        i32.store(at, kernel, step.kernel),
        number.set(ptr.add(way, size(entry.numbers))),
        to.set(ptr.add(at, size(step.args))),
        forRange(i, int(0), i32.load(way, entry.count), [
          i64.store(to, sum),
          advance(number, entry.numberBytes),
          advance(to, 8),
        ]),
        advance(at, step.bytes),
        count.set(i32.add(count, int(1))),
        first.set(end),
      ];
      return [
        at.set(steps),
        forRange(expert, int(0), experts, [
          end.set(i32.load(elementAt(starts, i32.add(expert, int(1)), 4))),
          when(i32.gt_s(end, places), [end.set(places)]),
          when(i32.gt_s(end, first), makeStep),
        ]),
        i32.store(fields.state, count, state.steps),
        i32.store(fields.state, int(0), state.nextTile),
        to.set(elementAt(y, first, ptr.mul(widen(n), size(4)))),
        forRange(i, i32.mul(first, n), i32.mul(places, n), [f32.store(to, float(Number.NaN)), advance(to, 4)]),
      ];
    }),
  ],
};

const runBlock = new ArgumentBlock({ state: "ptr", steps: "ptr" });

/** Runs tiles of steps until none are left. A tile is a thread. */
function runCode(codes: readonly KernelCode[]): KernelCode {
  const key = `experts_${codes.map((code) => code.key).join("_or_")}`;
  return {
    key,
    build: () => {
      const kernels = codes.map((code) => code.build());
      const run = kernelFunction(key, runBlock, (fields, { thread }, scope) => {
        const { state: shared, steps } = fields;
        const [tile, count, index, start] = ["next", "count", "index", "start"].map((name) =>
          scope.local("i32", name),
        ) as [Local<"i32">, Local<"i32">, Local<"i32">, Local<"i32">];
        const at = scope.local("ptr", "at");
        const isBehind = i32.ge_u(tile, i32.load(at, step.end));
        const given = { args: ptr.add(at, size(step.args)), tile: i32.sub(tile, start), thread };
        return [
          count.set(i32.load(shared, state.steps)),
          at.set(steps),
          whileDo(i32.lt_u(index, count), [
            tile.set(i32.atomic_rmw_add(shared, int(1), state.nextTile)),
            whileDo(i32.and(i32.lt_u(index, count), isBehind), [
              start.set(i32.load(at, step.end)),
              advance(at, step.bytes),
              index.set(i32.add(index, int(1))),
            ]),
            when(i32.ge_u(index, count), [leave]),
            kernels.map(([kernel], i) =>
              when(i32.eq(i32.load(at, step.kernel), int(i)), [
                call(kernel as FunctionCode<typeof kernelParams, null>, given),
              ]),
            ),
          ]),
        ];
      });
      return [run, ...kernels.flat()];
    },
  };
}

/** Resolves the matrix, or bias, of any expert to the address of the first expert's. */
function readingWholes(wholes: readonly ArrayBufferView[], read: Placement["read"]): Placement["read"] {
  const known = new Map<ArrayBufferView, number>();
  return (view) => {
    const first = view.byteOffset;
    const whole = wholes.find(
      ({ buffer, byteOffset, byteLength }) =>
        buffer === view.buffer && byteOffset <= first && first + view.byteLength <= byteOffset + byteLength,
    );
    if (!whole) return read(view);
    const place = known.get(whole) ?? read(whole);
    known.set(whole, place);
    return place;
  };
}

/** Arguments of a linear layer with `m` rows, for the matrix that code is generated for. */
type Template<A> = (m: number) => A;

/** A kernel of expert layers. `templateOf`: arguments to generate code for, so that it fits the matrices of all experts. */
function expertLinear<A>(
  name: string,
  templateOf: (args: ExpertLinearArgs<A>) => Template<A>,
): Kernel<ExpertLinearArgs<A>> {
  return wasmKernel<ExpertLinearArgs<A>>({
    ...plainRow,
    name,
    scratchBytes: (given, threads) =>
      scratchOf(given, templateOf(given), threads, state.bytes).end +
      step.bytes * Math.min(given.places, given.experts),
    step(given, place) {
      const { places, experts, n, x, y, routing, matrices } = given;
      const template = templateOf(given);
      const scratch = scratchOf(given, template, place.threads, place.scratch + state.bytes);
      const starts = place.read(routing);
      const to = place.write(y);
      const reading = { ...place, read: readingWholes([...matrices.wholes, x], place.read), write: () => to };
      const ways = waysOf(given, scratch.kernels, (i, m) =>
        wasmStep(matrices.choices[i]!.kernel, template(m), {
          ...reading,
          scratch: scratch.kernels[i]!.shared,
        }),
      );
      const before = new Map(ways.map((way) => [keyOf(way), way.before]));
      const shared = { state: place.scratch, steps: scratch.end };
      const codes = ways.map(({ product }) => product.code);
      return {
        phases: [
          { code: stepsCode, tiles: 1, args: stepsArguments({ ...shared, starts, places, experts, n, y: to }, ways) },
          ...[...before.values()].flat(),
          { code: runCode(codes), tiles: place.threads, args: runBlock.encode(shared) },
        ],
      };
    },
  });
}

/** Uses a template whose code fits all experts: code for possibly negative scales, or 8-bit levels, also serves the others. */
export const expertLinearPackedWasm: Kernel<ExpertLinearArgs<PackedLinearArgs>> = expertLinear(
  "expert_linear_packed_any_1x1x1_wasm_simd",
  ({ experts, matrices, x, y }) => {
    const all = Array.from({ length: experts }, (_, expert) => matrices.of(expert, 1, x, y).weights);
    const negative = all.findIndex((weights) => !panelShape(weights).hasPositiveScales);
    const expert = Math.max(0, negative);
    const levels = all.find((weights) => !panelShape(weights).hasNarrowLevels)?.levels ?? all[expert]!.levels;
    const weights = { ...all[expert]!, levels };
    return (m) => ({ ...matrices.of(expert, m, x, y), weights });
  },
);

export const expertLinearFloatWasm: Kernel<ExpertLinearArgs<FloatLinearArgs>> = expertLinear(
  "expert_linear_float_any_1x1x1_wasm_simd",
  ({ matrices, x, y }) =>
    (m) =>
      matrices.of(0, m, x, y),
);
