/**
 * Operators that give a number instead of a tensor: sizes, single elements, and arithmetic on these. Exporters emit them
 * where a size or position is known only at run time.
 */

import type { Arguments } from "../../ops/call-arguments.ts";
import { type NumberOperator, numberOperator } from "../../ops/operator-registry.ts";
import type { Tensor } from "../../tensor.ts";

/** aten::sym_size.int: one size of a tensor. */
function size(args: Arguments<Tensor>): number {
  const { shape } = args.tensor("self");
  const dim = args.integer("dim");
  const found = shape.at(dim);
  if (found === undefined) args.fail("dim", `expected -${shape.length}..${shape.length - 1} but found ${dim}`);
  return found;
}

/** aten::_local_scalar_dense: the value of a tensor of one element. */
function item(args: Arguments<Tensor>): number {
  const { data, shape } = args.tensor("self");
  if (data.length !== 1) args.fail("self", `expected one element but found shape [${shape}]`);
  return Number(data[0]);
}

const unary = (name: string, rule: (a: number) => number): NumberOperator =>
  numberOperator(`executorch_prim::${name}.Scalar(Scalar a) -> Scalar`, (args) => rule(args.number("a")));

const binary = (name: string, rule: (a: number, b: number) => number | boolean): NumberOperator =>
  numberOperator(`executorch_prim::${name}.Scalar(Scalar a, Scalar b) -> Scalar`, (args) =>
    rule(args.number("a"), args.number("b")),
  );

export const numberOperators: readonly NumberOperator[] = [
  numberOperator("aten::sym_size.int(Tensor self, int dim) -> SymInt", size),
  numberOperator("aten::sym_numel(Tensor self) -> SymInt", (args) => args.tensor("self").data.length),
  numberOperator("aten::_local_scalar_dense(Tensor self) -> Scalar", item),
  binary("add", (a, b) => a + b),
  binary("sub", (a, b) => a - b),
  binary("mul", (a, b) => a * b),
  binary("floordiv", (a, b) => Math.floor(a / b)),
  binary("truediv", (a, b) => a / b),
  binary("mod", (a, b) => a - Math.floor(a / b) * b),
  binary("eq", (a, b) => a === b),
  binary("gt", (a, b) => a > b),
  binary("ge", (a, b) => a >= b),
  binary("lt", (a, b) => a < b),
  binary("le", (a, b) => a <= b),
  binary("sym_max", Math.max),
  binary("sym_min", Math.min),
  unary("neg", (a) => -a),
  unary("ceil", Math.ceil),
  unary("trunc", Math.trunc),
  unary("sym_float", (a) => a),
  unary("sym_int", Math.trunc),
];
