/** Compiles expressions to closures over an activation. */
import { type Activation, holder, undefinedName } from "./activation.ts";
import {
  add,
  concatenate,
  divide,
  floorDivide,
  modulo,
  multiply,
  negate,
  plus,
  power,
  subtract,
} from "./arithmetic.ts";
import { attribute, callMethod, isPlainKey, item, slice } from "./attributes.ts";
import { contains, equals, isOrdered, type Order } from "./compare.ts";
import { fault, TemplateFault, typeError } from "./faults.ts";
import { callFilter, FILTERS, type Filter } from "./filters.ts";
import { unknown } from "./left-out.ts";
import { charge } from "./limits.ts";
import type { Symbols } from "./symbols.ts";
import type { Arguments, CallNode, Expression, FilterNode } from "./syntax.ts";
import { TESTS } from "./tests.ts";
import {
  Callable,
  Dict,
  Float,
  isText,
  isTrue,
  type Keywords,
  NO_KEYWORDS,
  Tuple,
  textOf,
  toList,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export type Evaluate = (activation: Activation) => Value;

type Node<K extends Expression["kind"]> = Extract<Expression, { kind: K }>;

const OPERATORS: Readonly<Record<string, (a: Value, b: Value) => Value>> = {
  "+": add,
  "-": subtract,
  "*": multiply,
  "/": divide,
  "//": floorDivide,
  "%": modulo,
  "**": power,
};

/** Names in scope; `soft`: within an `if`, where unknown filters fail only when they are reached. */
export interface ExpressionScope {
  readonly symbols: Symbols;
  readonly soft: boolean;
}

export function compileExpression(node: Expression, scope: ExpressionScope): Evaluate {
  switch (node.kind) {
    case "constant": {
      const { value } = node;
      return () => value;
    }
    case "float": {
      const value = new Float(node.value);
      return () => value;
    }
    case "name":
      return compileName(node.name, scope);
    case "tuple": {
      const items = compileAll(node.items, scope);
      return (a) => new Tuple(evaluateAll(items, a));
    }
    case "list": {
      const items = compileAll(node.items, scope);
      return (a) => evaluateAll(items, a);
    }
    case "dict":
      return compileDict(node, scope);
    case "attribute":
      return compileAttribute(node, scope);
    case "item":
      return compileItem(node, scope);
    case "call":
      return compileCall(node, scope);
    case "filter":
      return compileFilter(node, scope, compileExpression(node.input!, scope));
    case "test":
      return compileTest(node, scope);
    case "unary":
      return compileUnary(node, scope);
    case "binary":
      return compileBinary(node, scope);
    case "concat": {
      const parts = compileAll(node.parts, scope);
      return (a) => concatenate(evaluateAll(parts, a));
    }
    case "compare":
      return compileCompare(node, scope);
    case "condition":
      return compileCondition(node, scope);
    case "slice":
    case "namespace":
      throw new TemplateFault("TemplateSyntaxError", `a ${node.kind} is no expression`, node.line);
  }
}

function compileAll(nodes: readonly Expression[], scope: ExpressionScope): Evaluate[] {
  return nodes.map((node) => compileExpression(node, scope));
}

function evaluateAll(items: readonly Evaluate[], activation: Activation): Value[] {
  const values: Value[] = [];
  for (const evaluate of items) values.push(evaluate(activation));
  return values;
}

export function compileName(name: string, { symbols }: ExpressionScope): Evaluate {
  const variable = symbols.find(name)!;
  const { index } = variable;
  const { level } = symbols.scope;
  if (level === variable.scope.level)
    return (a) => {
      const value = a.variables[index];
      return value === undefined ? undefinedName(name) : value;
    };
  return (a) => {
    const value = holder(a, level, variable).variables[index];
    return value === undefined ? undefinedName(name) : value;
  };
}

function compileDict(node: Node<"dict">, scope: ExpressionScope): Evaluate {
  const pairs = node.pairs.map(
    ([key, value]) => [compileExpression(key, scope), compileExpression(value, scope)] as const,
  );
  return (a) => {
    const dict = new Dict();
    for (const [key, value] of pairs) dict.set(key(a), value(a));
    return dict;
  };
}

function compileAttribute(node: Node<"attribute">, scope: ExpressionScope): Evaluate {
  const object = compileExpression(node.object, scope);
  const { name } = node;
  if (!isPlainKey(name)) return (a) => attribute(object(a), name);
  return (a) => {
    const value = object(a);
    const found = value instanceof Dict ? value.get(name) : undefined;
    return found === undefined ? attribute(value, name) : found;
  };
}

function compileItem(node: Node<"item">, scope: ExpressionScope): Evaluate {
  const object = compileExpression(node.object, scope);
  if (node.index.kind === "slice") {
    const [start, stop, step] = [node.index.start, node.index.stop, node.index.step].map(
      (part): Evaluate => (part ? compileExpression(part, scope) : () => null),
    ) as [Evaluate, Evaluate, Evaluate];
    return (a) => slice(object(a), start(a), stop(a), step(a));
  }
  const index = compileExpression(node.index, scope);
  return (a) => item(object(a), index(a));
}

/** Evaluated arguments of one call. */
interface Passed {
  readonly args: Value[];
  readonly keywords: Keywords;
}

type Pass = (activation: Activation) => Passed;

function compileArguments(args: Arguments, scope: ExpressionScope): Pass {
  const positional = compileAll(args.positional, scope);
  if (args.keywords.length === 0 && !args.spread && !args.keywordSpread)
    return (a) => ({ args: evaluateAll(positional, a), keywords: NO_KEYWORDS });
  const keywords = args.keywords.map(({ name, value }) => [name, compileExpression(value, scope)] as const);
  const spread = args.spread && compileExpression(args.spread, scope);
  const keywordSpread = args.keywordSpread && compileExpression(args.keywordSpread, scope);
  return (a) => {
    const values = evaluateAll(positional, a);
    if (spread) for (const value of toList(spread(a))) values.push(value);
    const named = new Map(keywords.map(([name, value]) => [name, value(a)]));
    if (keywordSpread) addKeywords(named, keywordSpread(a));
    return { args: values, keywords: named };
  };
}

function addKeywords(named: Map<string, Value>, more: Value): void {
  if (more instanceof Undefined) more.fail();
  if (!(more instanceof Dict)) typeError(`argument after ** must be a mapping, not ${typeName(more)}`);
  for (const [key, value] of more.entries()) {
    charge();
    if (!isText(key)) typeError("keywords must be strings");
    if (named.has(textOf(key))) typeError(`got multiple values for keyword argument '${textOf(key)}'`);
    named.set(textOf(key), value);
  }
}

/** Calls a value. */
function callValue(callee: Value, args: readonly Value[], keywords: Keywords): Value {
  charge();
  if (callee instanceof Callable) return callee.call(args, keywords);
  if (callee instanceof Undefined) callee.fail();
  typeError(`'${typeName(callee)}' object is not callable`);
}

/** Compiles a call. `caller`, where given, is the body of a call block and is passed as the keyword `caller`. */
export function compileCall(node: CallNode, scope: ExpressionScope, caller?: Evaluate): Evaluate {
  const pass = compileArguments(node.args, scope);
  const { line } = node;
  if (node.callee.kind === "attribute" && !caller && !node.callee.name.startsWith("_"))
    return compileMethodCall(node.callee, pass, line, scope);
  const callee = compileExpression(node.callee, scope);
  return (a) => {
    const target = callee(a);
    const { args, keywords } = pass(a);
    const result = callValue(target, args, caller ? new Map(keywords).set("caller", caller(a)) : keywords);
    a.run.line = line;
    return result;
  };
}

/** Compiles `object.name(...)` without making a bound method where the object's type has the method. */
function compileMethodCall(callee: Node<"attribute">, pass: Pass, line: number, scope: ExpressionScope): Evaluate {
  const object = compileExpression(callee.object, scope);
  const { name } = callee;
  return (a) => {
    const self = object(a);
    const isBuiltIn = typeof self === "string" || Array.isArray(self) || self instanceof Dict;
    const target = isBuiltIn ? undefined : attribute(self, name);
    const { args, keywords } = pass(a);
    charge();
    let result = isBuiltIn ? callMethod(self, name, args, keywords) : undefined;
    if (result === undefined) result = callValue(target ?? attribute(self, name), args, keywords);
    a.run.line = line;
    return result;
  };
}

/** Looks up a filter or test. An unknown name fails at once; in a soft scope, only when it is reached (null). */
function named(kind: "filter" | "test", name: string, line: number, soft: boolean): Filter | null {
  const found = (kind === "filter" ? FILTERS : TESTS).get(name);
  if (!found && !soft) throw new TemplateFault("TemplateAssertionError", unknown(kind, name), line);
  return found ?? null;
}

export function compileFilter(node: FilterNode, scope: ExpressionScope, input: Evaluate): Evaluate {
  return compileNamed("filter", node, scope, input);
}

function compileTest(node: Node<"test">, scope: ExpressionScope): Evaluate {
  return compileNamed("test", node, scope, compileExpression(node.input, scope));
}

function compileNamed(
  kind: "filter" | "test",
  node: Node<"filter" | "test">,
  scope: ExpressionScope,
  input: Evaluate,
): Evaluate {
  const { name } = node;
  const found = named(kind, name, node.line, scope.soft);
  const pass = compileArguments(node.args, scope);
  if (!found) return () => fault("TemplateRuntimeError", `No ${kind} named '${name}' found.`);
  const { run } = found;
  const isPlain =
    node.args.positional.length === 0 &&
    node.args.keywords.length === 0 &&
    !node.args.spread &&
    !node.args.keywordSpread;
  if (isPlain && found.required <= 1)
    return (a) => {
      const value = input(a);
      charge();
      return run(value);
    };
  return (a) => {
    const value = input(a);
    const { args, keywords } = pass(a);
    charge();
    return callFilter(name, found, value, args, keywords);
  };
}

function compileUnary(node: Node<"unary">, scope: ExpressionScope): Evaluate {
  const operand = compileExpression(node.operand, scope);
  if (node.operator === "not") return (a) => !isTrue(operand(a));
  return node.operator === "-" ? (a) => negate(operand(a)) : (a) => plus(operand(a));
}

function compileBinary(node: Node<"binary">, scope: ExpressionScope): Evaluate {
  const left = compileExpression(node.left, scope);
  const right = compileExpression(node.right, scope);
  if (node.operator === "and")
    return (a) => {
      const value = left(a);
      return isTrue(value) ? right(a) : value;
    };
  if (node.operator === "or")
    return (a) => {
      const value = left(a);
      return isTrue(value) ? value : right(a);
    };
  const operate = OPERATORS[node.operator]!;
  return (a) => operate(left(a), right(a));
}

function comparison(operator: string): (a: Value, b: Value) => boolean {
  switch (operator) {
    case "==":
      return equals;
    case "!=":
      return (a, b) => !equals(a, b);
    case "in":
      return (a, b) => contains(b, a);
    case "not in":
      return (a, b) => !contains(b, a);
  }
  return (a, b) => isOrdered(operator as Order, a, b);
}

function compileCompare(node: Node<"compare">, scope: ExpressionScope): Evaluate {
  const first = compileExpression(node.first, scope);
  const rest = node.rest.map(({ operator, operand }) => ({
    holds: comparison(operator),
    operand: compileExpression(operand, scope),
  }));
  if (rest.length === 1) {
    const { holds, operand } = rest[0]!;
    return (a) => holds(first(a), operand(a));
  }
  return (a) => {
    let left = first(a);
    for (const { holds, operand } of rest) {
      const right = operand(a);
      if (!holds(left, right)) return false;
      left = right;
    }
    return true;
  };
}

function compileCondition(node: Node<"condition">, scope: ExpressionScope): Evaluate {
  const soft = { symbols: scope.symbols, soft: true };
  const test = compileExpression(node.test, soft);
  const value = compileExpression(node.value, soft);
  const message = () => "the inline if-expression evaluated to false and no else section was defined.";
  const otherwise: Evaluate = node.otherwise ? compileExpression(node.otherwise, soft) : () => new Undefined(message);
  return (a) => (isTrue(test(a)) ? value(a) : otherwise(a));
}
