import { describe, expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import type { Graph, GraphValue } from "./graph.ts";
import { type Lifetime, lifetimesOf, planMemory, planState } from "./memory-plan.ts";

const roundUp = (bytes: number) => Math.ceil(bytes / 64) * 64;

function randomLifetimes(random: Random): Map<number, Lifetime> {
  const nodes = random.integer(1, 40);
  const lifetimes = new Map<number, Lifetime>();
  for (let key = 0; key < random.integer(0, 60); key++) {
    const first = random.integer(0, nodes - 1);
    const last = Math.min(nodes - 1, first + random.integer(0, random.pick([0, 2, 30])));
    lifetimes.set(key, { bytes: random.pick([0, 1, 63, 64, 65, 1000, random.integer(1, 100_000)]), first, last });
  }
  return lifetimes;
}

describe("planMemory, on random lifetimes", () => {
  it("never lets two tensors that are alive together overlap, and starts each at a cache line", () => {
    for (let seed = 0; seed < 500; seed++) {
      const lifetimes = randomLifetimes(new Random(seed));
      const { offsets, totalBytes } = planMemory(lifetimes);
      expect([...offsets.keys()].sort()).toEqual([...lifetimes.keys()].sort());
      for (const [a, x] of lifetimes) {
        const start = offsets.get(a)!;
        expect(start % 64).toBe(0);
        expect(start + x.bytes).toBeLessThanOrEqual(totalBytes);
        for (const [b, y] of lifetimes) {
          if (a >= b || x.first > y.last || y.first > x.last) continue;
          const other = offsets.get(b)!;
          const apart = start + x.bytes <= other || other + y.bytes <= start;
          if (!apart) expect.fail(`seed ${seed}: ${a} at ${start} and ${b} at ${other} overlap`);
        }
      }
    }
  });

  it("needs at least what is alive at once and at most everything", () => {
    let planned = 0;
    let least = 0;
    for (let seed = 0; seed < 500; seed++) {
      const lifetimes = [...randomLifetimes(new Random(seed))];
      const { totalBytes } = planMemory(new Map(lifetimes));
      const live = (node: number) =>
        lifetimes.filter(([, { first, last }]) => first <= node && node <= last).map(([, { bytes }]) => bytes);
      const sum = (sizes: number[]) => sizes.reduce((total, bytes) => total + bytes, 0);
      const bound = Math.max(0, ...Array.from({ length: 40 }, (_, node) => sum(live(node))));
      expect(totalBytes).toBeGreaterThanOrEqual(bound);
      expect(totalBytes).toBeLessThanOrEqual(sum(lifetimes.map(([, { bytes }]) => roundUp(bytes))));
      planned += totalBytes;
      least += bound;
    }
    // Greedy by size is known to come within a few percent of the bound.
    expect(planned / least).toBeLessThan(1.05);
  });

  it("fills the lowest gap", () => {
    const plan = planMemory(
      new Map([
        ["large", { bytes: 1000, first: 0, last: 1 }],
        ["late", { bytes: 500, first: 2, last: 3 }],
        ["long", { bytes: 100, first: 0, last: 3 }],
        ["small", { bytes: 64, first: 3, last: 3 }],
      ]),
    );
    expect(Object.fromEntries(plan.offsets)).toEqual({ large: 0, late: 0, long: 1024, small: 512 });
    expect(plan.totalBytes).toBe(1024 + 128);
  });
});

function value(kind: GraphValue["kind"], size: number, name: string | null = null): GraphValue {
  return { kind, name, spec: { dtype: "f32", shape: [size] }, smallest: [size], constant: null };
}

describe("lifetimesOf", () => {
  it("inputs live from the start, outputs to the end, constants and state not at all", () => {
    const input = value("input", 1);
    const early = value("computed", 2);
    const late = value("computed", 3);
    const unused = value("input", 4);
    const graph: Graph = {
      name: "forward",
      inputs: [input, unused],
      outputs: [late, input],
      nodes: [
        { operator: "a", args: [value("constant", 9), 1], out: early },
        { operator: "b", args: [early, value("state", 9, "cache"), input], out: late },
      ],
    };
    expect(lifetimesOf(graph)).toEqual(
      new Map([
        [input, { bytes: 4, first: 0, last: 2 }],
        [unused, { bytes: 16, first: 0, last: 0 }],
        [early, { bytes: 8, first: 0, last: 1 }],
        [late, { bytes: 12, first: 1, last: 2 }],
      ]),
    );
  });
});

describe("planState", () => {
  it("gives a name one place in all graphs", () => {
    const use = (...states: GraphValue[]): Graph => ({
      name: "m",
      inputs: [],
      outputs: [],
      nodes: [{ operator: "a", args: states, out: value("computed", 1) }],
    });
    const plan = planState([
      use(value("state", 3, "keys"), value("state", 20, "values")),
      use(value("state", 20, "values"), value("state", 1, "more")),
    ]);
    expect(Object.fromEntries(plan.offsets)).toEqual({ keys: 0, values: 64, more: 192 });
    expect(plan.totalBytes).toBe(256);
  });

  it("has states that are only given back, too", () => {
    const plan = planState([{ name: "m", inputs: [], outputs: [value("state", 3, "keys")], nodes: [] }]);
    expect([...plan.offsets]).toEqual([["keys", 0]]);
    expect(plan.totalBytes).toBe(64);
  });
});
