/** Declared kernels at random sizes: every kernel that this CPU can run computes what its family's reference does. */
import { argumentsFor, type Cases, writtenBy } from "../../src/kernels/cases.ts";
import { hostCpu } from "../../src/kernels/cpu.ts";
import * as allCases from "../../src/kernels/families/cases.ts";
import { wasmFeatures } from "../../src/kernels/wasm/features.ts";
import type { Random } from "../support/random.ts";
import { type Fuzzer, Misbehaviour } from "./child.ts";

const SIZE_MAX = 400;
/** Most values of an array, so that a call takes milliseconds. */
const VALUES_MAX = 1 << 16;
/** Euclidean distance from the reference's result, as a share of its length. */
const DISTANCE_MAX = 1e-5;

type Call = Record<string, unknown>;

/** The case with other numbers of rows or elements, and other sizes of a row unless a result's follow from them. */
function resized({ family: { fields, by } }: Cases, given: Call, random: Random): Call {
  const arrays = Object.values(fields).filter((field) => field.kind === "array");
  const sizesOf = (some: typeof arrays) => new Set(some.flatMap(({ sizes }) => sizes ?? []));
  const read = sizesOf(arrays.filter(({ access }) => access !== "write"));
  const isDerived = [...sizesOf(arrays)].some((size) => !read.has(size));
  const names = isDerived ? [by === "rows" ? "rows" : "count"] : [...read];
  const call = { ...given };
  let left = VALUES_MAX;
  for (const name of names) {
    if (typeof given[name] !== "number") continue;
    const size = random.integer(1, Math.max(1, Math.min(SIZE_MAX, left)));
    call[name] = size;
    left = Math.floor(left / size);
  }
  return call;
}

function isClose(found: ArrayLike<number | bigint>, expected: ArrayLike<number | bigint>): boolean {
  let [distance, length] = [0, 1e-30];
  for (let i = 0; i < expected.length; i++) {
    distance += (Number(found[i]) - Number(expected[i])) ** 2;
    length += Number(expected[i]) ** 2;
  }
  return Math.sqrt(distance / length) <= DISTANCE_MAX;
}

export const fuzzKernels: Fuzzer = async () => {
  const features = new Set<string>([...hostCpu().features, ...wasmFeatures()]);
  const declared = Object.values<Cases>(allCases as never).filter(({ family }) => family.by);
  return async (random) => {
    const cases = random.pick(declared);
    const { family } = cases;
    const call = resized(cases, random.pick(cases.small) as Call, random);
    const [reference, threads] = [family.at(-1)!, random.integer(1, 3)];
    const expected = argumentsFor(family, call as never);
    reference.bind(expected, new Uint8Array(0), 1)();
    for (const kernel of family.filter(({ needs }) => needs.every((need) => features.has(need)))) {
      const args = argumentsFor(family, call as never);
      kernel.bind(args, new Uint8Array(kernel.scratchBytes?.(args, threads) ?? 0), threads)();
      if (!isClose(writtenBy(family, args), writtenBy(family, expected)))
        throw new Misbehaviour(
          `${kernel.name} differs from the reference: ${JSON.stringify(call)}, ${threads} threads`,
        );
    }
  };
};
