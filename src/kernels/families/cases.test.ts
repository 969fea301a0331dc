/**
 * Every kernel of every declared family on the family's cases: against its reference, on several threads, from memory that
 * begins anywhere; rows of results are the same bits whatever is computed with them. The files beside the families have
 * what results must be.
 */
import { describe, expect, it } from "vitest";
import { type Bench, benchesFor, describeRows, heap, machine, run } from "../../../test/support/conformance.ts";
import { ShapeError } from "../../errors.ts";
import { argumentsFor, type Cases, writtenBy } from "../cases.ts";
import type { Kernel } from "../contract.ts";
import type { ArgumentsOf, Fields } from "../declaration.ts";
import * as allCases from "./cases.ts";
import * as families from "./index.ts";

type Arrays = Record<string, Float32Array | number | string | null>;

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));
const cpu = machine();

/** A copy whose floats begin four bytes after a cache line. */
function displaced<A>(value: A): A {
  if (!(value instanceof Float32Array)) return value;
  const copy = new Float32Array(new ArrayBuffer(value.byteLength + 4), 4, value.length);
  copy.set(value);
  return copy as A;
}

const copyOf = (args: object) =>
  Object.fromEntries(Object.entries(args).map(([name, value]) => [name, displaced(value)])) as Arrays;

/** All arrays that a call writes. */
function results({ fields }: { readonly fields: Fields }, args: Arrays) {
  const written = Object.entries(fields).filter(([, field]) => field.kind === "array" && field.access !== "read");
  return written.map(([name]) => args[name] as Float32Array);
}

function expectClose(found: Float32Array, expected: Float32Array, name: string): void {
  if (!(expected instanceof Float32Array)) {
    expect(found, name).toEqual(expected);
    return;
  }
  let [distance, length] = [0, 1e-30];
  for (let i = 0; i < expected.length; i++) {
    distance += (found[i]! - expected[i]!) ** 2;
    length += expected[i]! ** 2;
  }
  expect(Math.sqrt(distance / length), name).toBeLessThanOrEqual(1e-5);
}

/** The numbers and words of a case. */
const nameOf = (call: object) =>
  JSON.stringify(Object.fromEntries(Object.entries(call).filter(([, value]) => typeof value !== "object")));

/** Those of a case, and of others with more or fewer of what tiles are made of. */
function sizesOf(by: "rows" | "elements", call: object): object[] {
  const counts = by === "rows" ? [1, 4, 70] : [1, 15, 16, 17, 5000];
  return [call, ...counts.map((count) => ({ ...call, [by === "rows" ? "rows" : "count"]: count }))];
}

/** The call of `m` rows or elements, from `first` on, of another. */
function partOf(fields: Fields, by: "rows" | "elements", whole: Arrays, first: number, m: number): Arrays {
  const size = by === "rows" ? "rows" : "count";
  const args: Arrays = { ...whole, [size]: m };
  for (const [name, field] of Object.entries(fields)) {
    const array = whole[name];
    if (field.kind !== "array" || field.sizes?.[0] !== size || array === null) continue;
    const each = (array as Float32Array).length / (whole[size] as number);
    args[name] = displaced((array as Float32Array).slice(first * each, (first + m) * each));
  }
  return args;
}

it("each family by rows or elements has cases", () => {
  const declared = Object.entries(families).filter(([, list]) => "by" in list);
  expect(declared.length).toBeGreaterThan(15);
  expect(declared.map(([name]) => name).filter((name) => !(name in allCases))).toEqual([]);
});

describe.each(Object.entries<Cases>(allCases as never))("%s", (_, { family, small, model }) => {
  const reference = family.at(-1)!;
  const { by } = family;
  const all = by ? small.flatMap((call) => sizesOf(by, call)) : small;

  describeRows<ArgumentsOf<Fields>>(family, cpu, (kernel: Kernel<never>) => {
    it("computes what the reference does", () => {
      for (const call of all) {
        const given = argumentsFor(family, call as never);
        const expected = copyOf(given);
        run(reference, expected as never, benches[0]!);
        for (const bench of benchesFor(kernel, benches)) {
          const found = copyOf(given);
          run(kernel, found as never, bench);
          for (const [i, array] of results(family, found).entries())
            expectClose(array, results(family, expected)[i]!, `${nameOf(call)}, ${bench.threads} threads`);
        }
      }
    });

    it.skipIf(!by)("computes the same bits whatever is computed with it", () => {
      for (const call of small.map((one) => ({ ...one, [by === "rows" ? "rows" : "count"]: 7 }))) {
        const given = argumentsFor(family, call as never) as unknown as Arrays;
        const whole = copyOf(given);
        run(kernel, whole as never, benches.at(-1)!);
        for (const [first, m] of [
          [0, 1],
          [2, 1],
          [3, 4],
        ] as const) {
          const part = partOf(family.fields, by!, given, first, m);
          const expected = partOf(family.fields, by!, whole, first, m);
          run(kernel, part as never, benches[0]!);
          for (const [i, array] of results(family, part).entries())
            expect(array, nameOf(call)).toEqual(results(family, expected)[i]);
        }
      }
    });

    it.skipIf(!by && kernel.target !== "native")("refuses arrays that are not as long as their sizes say", () => {
      const args = { ...argumentsFor(family, small[0]!) } as unknown as Arrays;
      const [written] = Object.entries(args).find(
        ([, value]) => value === (writtenBy(family, args as never) as never),
      )!;
      const short = { ...args, [written]: (args[written] as Float32Array).subarray(1) };
      expect(() => run(kernel, short as never, benches[0]!)).toThrow(ShapeError);
    });
  });

  it("has calls of models, of one token and more", () => {
    for (const tokens of [1, 3]) {
      const given = model(tokens, { hidden: 8, intermediate: 16, heads: 2, kvHeads: 1, headDim: 4, vocabulary: 32 });
      run(reference, argumentsFor(family, given) as never, benches[0]!);
    }
  });
});
