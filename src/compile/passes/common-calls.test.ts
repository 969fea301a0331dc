/** Equal calls become one; calls that read or write state stay as they are. */
import { describe, expect, it } from "vitest";
import { scalarCpu } from "../../kernels/cpu.ts";
import { Ops } from "../../ops/ops.ts";
import { operators } from "../../registry/operators.ts";
import { capture, type MethodSource } from "../capture.ts";
import { formatGraph } from "../graph.ts";
import { mergeCommonCalls } from "./common-calls.ts";

const x = { name: "x", spec: { dtype: "f32", shape: [1, 1, 4] }, smallest: [1, 1, 4] } as const;
const pos = { name: "pos", spec: { dtype: "i64", shape: [1] }, smallest: [1] } as const;
const cache = { dtype: "f32", shape: [1, 8, 1, 4] } as const;

const merged = (source: MethodSource) =>
  formatGraph(mergeCommonCalls(capture(source, operators, scalarCpu), operators));

describe("mergeCommonCalls", () => {
  it("keeps the first of equal calls, also of calls on merged values", () => {
    const source: MethodSource = {
      name: "forward",
      inputs: [x],
      build(builder, [value]) {
        const twice = [0, 1].map(() => builder.call("aten::mul.out", builder.call("aten::neg.out", value!), value!));
        return [builder.call("aten::cat.out", twice, 0), builder.call("aten::mul.Scalar_out", value!, 2)];
      },
    };
    expect(merged(source)).toBe(
      [
        "forward(x: f32[1, 1, 4])",
        "  %0: f32[1, 1, 4] = aten::neg.out(x)",
        "  %1: f32[1, 1, 4] = aten::mul.out(%0, x)",
        "  %2: f32[2, 1, 4] = aten::cat.out([%1, %1], 0)",
        "  %3: f32[1, 1, 4] = aten::mul.Scalar_out(x, 2)",
        "  return %2, %3",
      ].join("\n"),
    );
  });

  it("leaves calls on state alone", () => {
    const source: MethodSource = {
      name: "forward",
      inputs: [x, pos],
      build(builder, [value, position]) {
        const ops = new Ops(builder);
        const [keyCache, valueCache] = [builder.state("keys", cache), builder.state("values", cache)];
        const attend = () =>
          ops.attention(value!, value!, value!, { cache: { keyCache, valueCache, position: position! }, scale: 1 });
        return [attend(), attend()];
      },
    };
    expect(merged(source).match(/lowbit::attention/g)).toHaveLength(2);
  });
});
