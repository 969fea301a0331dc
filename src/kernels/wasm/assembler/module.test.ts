/** The assembler: modules that engines take, results, and the text of what was assembled. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../../../errors.ts";
import { moduleMemory } from "../engine/engine-memory.ts";
import { webAssembly } from "../engine/web-assembly.ts";
import type { FunctionCode } from "./expression.ts";
import {
  bytes16,
  call,
  callFor,
  callIndirect,
  drop,
  type Local,
  select,
  shuffle,
  shuffle4,
  vector,
  when,
  whileDo,
  widen,
} from "./expression.ts";
import { f32, f32x4, f64, float, i32, i32x4, i64, int, long, size, v128 } from "./instructions.ts";
import { defineFunction, defineFunctionOf, Module, type ModuleOptions } from "./module.ts";
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

describe("refuses numbers that the format has no room for, which would become others", () => {
  const one = v128.load(size(0));
  it.each<[string, () => unknown]>([
    ["i32x4.extract_lane: expected a lane from 0 to 3 but found 4", () => i32x4.extract_lane(one, 4)],
    ["f32x4.replace_lane: expected a lane from 0 to 3 but found 256", () => f32x4.replace_lane(one, float(1), 256)],
    ["i32x4.extract_lane: expected a lane from 0 to 3 but found 0.5", () => i32x4.extract_lane(one, 0.5)],
    ["v128.store64_lane: expected a lane from 0 to 1 but found 2", () => v128.store64_lane(size(0), one, 2)],
    ["v128.load: expected an offset from 0 to 9007199254740991 but found -16", () => v128.load(size(0), -16)],
    ["i32.store: expected an offset from 0 to 9007199254740991 but found 1.5", () => i32.store(size(0), int(1), 1.5)],
    ["v128.store32_lane: expected an offset from 0", () => v128.store32_lane(size(0), one, 1, Number.NaN)],
    ["i32.const: expected a number from -2147483648 to 4294967295 but found 4294967296", () => int(2 ** 32)],
    ["i32.const: expected a number from -2147483648 to 4294967295 but found 1.5", () => int(1.5)],
    ["i64.const: expected a number from -9223372036854775808 to 18446744073709551615", () => long(2n ** 64n)],
    ["ptr.const: expected a number from -9007199254740991 to 9007199254740991 but found NaN", () => size(Number.NaN)],
    ["v128.const: expected 16 bytes but found 15", () => vector(Array(15).fill(0))],
    ["v128.const: expected a byte from -128 to 255 but found 256", () => vector([...Array(15).fill(0), 256])],
    ["v128.const: expected a byte from -128 to 255 but found 300", () => bytes16(300)],
    ["i8x16.shuffle: expected 16 lanes but found 4", () => shuffle(one, one, [0, 1, 2, 3])],
    ["i8x16.shuffle: expected a lane from 0 to 31 but found 32", () => shuffle(one, one, Array(16).fill(32))],
    ["i8x16.shuffle: expected a lane from 0 to 7 but found 8", () => shuffle4(one, one, [0, 1, 2, 8])],
    ["i8x16.shuffle: expected 4 lanes but found 3", () => shuffle4(one, one, [0, 1, 2])],
  ])("%s", (message, build) => {
    expect(build).toThrow(InvalidArgumentError);
    expect(build).toThrow(message);
  });

  it("addresses and offsets beyond 32 bits, in modules of 32 bits", () => {
    const load = defineFunction("load", {}, () => [drop(i32.load(size(0), 2 ** 32))]);
    const large = defineFunction("large", {}, () => [drop(size(2 ** 32))]);
    const wide = { ...options, isWide: true };
    for (const code of [load, large]) {
      expect(() => new Module(options, [code]).encode()).toThrow("needs a module of 64-bit addresses");
      expect(new Module(wide, [code]).encode().length).toBeGreaterThan(0);
    }
  });

  it("pages of memory", () => {
    for (const pages of [
      { initialPages: 2, maximumPages: 1 },
      { initialPages: -1, maximumPages: 1 },
    ]) {
      const memory = { ...pages, isShared: false };
      expect(() => new Module({ ...options, memory }, []).encode()).toThrow(InvalidArgumentError);
    }
  });

  it("and no other ones", () => {
    const bits = defineFunctionOf("bits", {}, () => ({ body: [], returned: int(0xffff_fffe) }));
    const words = defineFunction("words", {}, () => [
      i64.store(size(0), long(2n ** 64n - 1n), undefined),
      v128.store(size(16), vector(Array(16).fill(-1))),
      v128.store(size(32), bytes16(-2)),
    ]);
    const { exports, memory } = instantiate([bits, words]);
    exports.words!();
    expect(exports.bits!()).toBe(-2);
    expect([...new Uint8Array(memory.buffer, 0, 8)]).toEqual(Array(8).fill(255));
    expect([...new Uint8Array(memory.buffer, 16, 32)]).toEqual([...Array(16).fill(255), ...Array(16).fill(254)]);
  });
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
