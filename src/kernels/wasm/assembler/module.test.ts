/** The assembler: modules that engines take, results, and the text of what was assembled. */
import { describe, expect, it } from "vitest";
import { moduleMemory } from "../engine-memory.ts";
import { webAssembly } from "../web-assembly.ts";
import { call, callFor, callIndirect, drop, type Local, select, shuffle4, when, whileDo, widen } from "./expression.ts";
import { f32, f64, i32, i32x4, i64, int, long, size, v128 } from "./instructions.ts";
import { defineFunction, defineFunctionOf, type FunctionCode, Module, type ModuleOptions } from "./module.ts";
import { printModule } from "./print.ts";

const options: ModuleOptions = {
  isWide: false,
  memory: moduleMemory({ isWide: false, isShared: false }),
  imports: [],
  hasTable: false,
};

function instantiate(functions: readonly FunctionCode[]) {
  const memory = new webAssembly!.Memory({ initial: 1, maximum: 1, shared: false });
  const module = new webAssembly!.Module(new Module(options, functions).encode());
  return { exports: new webAssembly!.Instance(module, { env: { memory } }).exports, memory };
}

/** 0 + 1 + .. + n - 1 */
const triangle = defineFunctionOf("triangle", { n: "i32" }, ({ n }, scope) => {
  const sum = scope.local("i32", "sum");
  const i = scope.local("i32", "i");
  const body = [whileDo(i32.lt_u(i, n), [sum.set(i32.add(sum, i)), i.set(i32.add(i, int(1)))])];
  return { body, returned: sum };
});

describe("functions", () => {
  it("loop, choose and return", () => {
    const absolute = defineFunctionOf("absolute", { x: "i32" }, ({ x }) => ({
      body: [],
      returned: select(i32.lt_s(x, int(0)), i32.sub(int(0), x), x),
    }));
    const { exports } = instantiate([triangle, absolute]);
    expect([0, 1, 5, 100].map((n) => exports.triangle!(n))).toEqual([0, 0, 10, 4950]);
    expect([-7, 0, 7].map((x) => exports.absolute!(x))).toEqual([7, 0, 7]);
  });

  it("take constants of all types and sizes", () => {
    const integers = [0, 63, 64, -64, -65, 2 ** 31 - 1, -(2 ** 31)];
    const store = defineFunction("store", {}, () => [
      integers.map((value, i) => i32.store(size(0), int(value), 4 * i)),
      i64.store(size(64), long(-(2n ** 63n))),
      f64.store(size(72), f64.neg(f64.promote_f32(f32.load(size(80))))),
    ]);
    const { exports, memory } = instantiate([store]);
    new Float32Array(memory.buffer, 80, 1)[0] = 0.5;
    exports.store!();
    expect([...new Int32Array(memory.buffer, 0, integers.length)]).toEqual(integers);
    expect(new BigInt64Array(memory.buffer, 64, 1)[0]).toBe(-(2n ** 63n));
    expect(new Float64Array(memory.buffer, 72, 1)[0]).toBe(-0.5);
  });

  it("call one another and move lanes", () => {
    const reverse = defineFunction("reverse", { at: "ptr" }, ({ at }) => [
      v128.store(at, shuffle4(v128.load(at), i32x4.splat(int(9)), [3, 2, 1, 4])),
    ]);
    const both = defineFunction("both", { at: "i32" }, ({ at }) => [
      when(at, [call(reverse, { at: widen(at) })], [drop(at)]),
    ]);
    const { exports, memory } = instantiate([reverse, both]);
    const words = new Int32Array(memory.buffer, 16, 4);
    words.set([1, 2, 3, 4]);
    exports.both!(16);
    expect([...words]).toEqual([4, 3, 2, 9]);
  });
});

it("prints what it assembles", () => {
  expect(printModule(new Module(options, [triangle]))).toBe(`(module
  (import "env" "memory" (memory 1 65536))
  (func $triangle (export "triangle") (param $n i32) (result i32)
    (local $sum i32) (local $i i32)
    (block $done (loop $again
      (br_if $done (i32.eqz (i32.lt_u (local.get $i) (local.get $n))))
      (local.set $sum (i32.add (local.get $sum) (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $again)))
    (local.get $sum)))
`);
});

it("refuses functions and variables of elsewhere, which would be others of the same number", () => {
  const absent = defineFunction("absent", { n: "i32" }, () => []);
  const caller = defineFunction("caller", { n: "i32" }, ({ n }) => [call(absent, { n })]);
  expect(() => new Module(options, [caller]).encode()).toThrow("absent: is not of this module");
  const [sum] = triangle.locals as [Local<"i32">];
  const borrower = defineFunction("borrower", { m: "i32" }, () => [sum.set(int(1))]);
  expect(() => new Module(options, [borrower]).encode()).toThrow("n: is not of this function");
});

it("refuses operands of other types when it is compiled", () => {
  const unused = () => {
    // @ts-expect-error a vector is no integer
    i32.add(int(1), v128.load(size(0)));
    // @ts-expect-error an integer is no address
    i32.load(int(0));
    // @ts-expect-error a lane is needed
    i32x4.extract_lane(v128.load(size(0)));
    const at = defineFunction("at", { address: "ptr", count: "i32" }, () => []);
    const type = { params: at.params, result: null };
    call(at, { address: size(0), count: int(1) });
    // @ts-expect-error an integer is no address
    call(at, { address: int(0), count: int(1) });
    // @ts-expect-error an operand is missing
    call(at, { address: size(0) });
    // @ts-expect-error it has no such parameter
    call(at, { address: size(0), count: int(1), more: int(1) });
    // @ts-expect-error a result must be used
    call(triangle, { n: int(1) });
    // @ts-expect-error there is no result
    callFor(at, { address: size(0), count: int(1) });
    // @ts-expect-error the result is an integer
    f32.neg(callFor(triangle, { n: int(1) }));
    // @ts-expect-error a vector is no integer
    callIndirect(type, int(0), { address: size(0), count: v128.load(size(0)) });
    // @ts-expect-error an index is no address
    callIndirect(type, size(0), { address: size(0), count: int(1) });
  };
  expect(unused).toBeTypeOf("function");
});
