/** General operators against PyTorch's results: golden/cases.json.golden, made by golden/make.py. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { byteSize, type DType, zeros } from "../../dtype.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import { type Argument, Arguments, type TensorSpec } from "../../ops/call-arguments.ts";
import { operators } from "../../registry/operators.ts";
import { type Tensor, zeroTensor } from "../../tensor.ts";

interface Stored {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: readonly (number | string)[];
}

interface Case {
  readonly operator: string;
  readonly arguments: readonly unknown[];
  readonly result: Stored | readonly Stored[];
}

const file = new URL("./golden/cases.json.golden", import.meta.url);
const cases = JSON.parse(readFileSync(file, "utf8")) as readonly Case[];

/** Python writes "inf" and "nan". */
const numberOf = (value: number | string) =>
  Number(typeof value === "string" ? value.replace("inf", "Infinity") : value);

function tensorOf({ dtype, shape, data }: Stored): Tensor {
  const values = zeros(dtype, data.length);
  for (const [i, value] of data.entries())
    (values as Float64Array)[i] = (values instanceof BigInt64Array ? BigInt(value) : numberOf(value)) as number;
  return { dtype, shape, data: values };
}

function argumentOf(value: unknown): Argument<Tensor> {
  if (Array.isArray(value)) return value.map(argumentOf) as Argument<Tensor>;
  return typeof value === "object" && value ? tensorOf(value as Stored) : (value as Argument<Tensor>);
}

function results(name: string, args: readonly Argument<Tensor>[], planned: readonly DType[]): readonly Tensor[] {
  const schema = operators.schema(name);
  const routine = operators.routine(name);
  if (routine?.run) {
    const specs = routine.outs(new Arguments<TensorSpec>(schema, args), planned);
    const outs = specs.map(({ dtype, shape }) => zeroTensor(dtype, shape));
    const isList = schema.args.at(-1)!.type === "Tensor[]";
    routine.run(new Arguments(schema, isList ? [...args, outs] : [...args, ...outs]));
    return outs;
  }
  const operator = operators.get(name);
  const spec = operator.shape(new Arguments<TensorSpec>(schema, args), planned[0]);
  const out = zeroTensor(spec.dtype, spec.shape);
  const call = operator.resolve(new Arguments(schema, [...args, out]), hostCpu());
  call.bind(new Uint8Array(call.scratchBytes(1)), 1)();
  return [out];
}

describe("operators of other exporters", () => {
  it.each(cases.map((entry, i) => [i, entry.operator, entry] as const))("%i: %s", (_, name, entry) => {
    const expected = [entry.result].flat() as readonly Stored[];
    const planned = expected.map(({ dtype }) => dtype);
    const found = results(name, entry.arguments.map(argumentOf), planned);
    for (const [i, { dtype, shape, data }] of expected.entries()) {
      expect([found[i]!.dtype, found[i]!.shape]).toEqual([dtype, shape]);
      if (found[i]!.data instanceof BigInt64Array) {
        expect(Array.from(found[i]!.data as BigInt64Array)).toEqual(data.map(BigInt));
        continue;
      }
      const tolerance = byteSize(dtype) >= 4 && dtype.startsWith("f") ? 2e-6 : 0;
      for (const [at, value] of data.entries()) {
        const [actual, wanted] = [Number(found[i]!.data[at]), numberOf(value)];
        const close =
          Object.is(actual, wanted) || Math.abs(actual - wanted) <= tolerance * Math.max(1, Math.abs(wanted));
        expect(close, `element ${at}: expected ${value} but found ${found[i]!.data[at]}`).toBe(true);
      }
    }
  });
});
