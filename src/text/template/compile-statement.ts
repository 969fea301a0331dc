/** Compiles statements to closures over an activation. */
import { Activation, holder } from "./activation.ts";
import { compileCall, compileExpression, compileFilter, type Evaluate } from "./compile-expression.ts";
import { compileNamespaceChecks, compileTarget, type TargetScope } from "./compile-target.ts";
import { TemplateFault } from "./faults.ts";
import { charge, enter, leave } from "./limits.ts";
import { Loop, type Recurse } from "./loop.ts";
import { Macro, type MacroShape } from "./macro.ts";
import { toText } from "./print.ts";
import { FunctionScope, type Load, Symbols, someStatement, targetNames, undeclared, type Variable } from "./symbols.ts";
import type {
  BlockNode,
  CallBlockNode,
  Expression,
  FilterBlockNode,
  FilterNode,
  ForNode,
  IfNode,
  MacroNode,
  SetBlockNode,
  Signature,
  Statement,
  WithNode,
} from "./syntax.ts";
import { isTrue, iterate, NO_KEYWORDS, PyIterator, Undefined, type Value } from "./values.ts";

/** How a statement ended: normally, by `break` or by `continue`. */
const NEXT = 0;
const BREAK = 1;
const CONTINUE = 2;
type Signal = typeof NEXT | typeof BREAK | typeof CONTINUE;

type Execute = (activation: Activation) => Signal;

interface Scope extends TargetScope {
  readonly inLoop: boolean;
}

/** A compiled template: renders into a new activation. */
export type Program = (run: Activation["run"]) => string;

export function compileTemplate(statements: readonly Statement[]): Program {
  const symbols = new Symbols(new FunctionScope(null), null);
  symbols.statements(statements);
  const body = compileFunction(statements, { symbols, soft: false, top: true, inLoop: false });
  return (run) => {
    const activation = new Activation(run, null, symbols.scope.size);
    body(activation);
    return activation.output;
  };
}

/** Compiles the statements of a function's scope, after initializing its variables. */
function compileFunction(statements: readonly Statement[], scope: Scope): Execute {
  const load = compileLoads(scope.symbols);
  const body = compileBody(statements, scope);
  return (a) => {
    load(a);
    return body(a);
  };
}

function compileBody(statements: readonly Statement[], scope: Scope): Execute {
  const body = statements.map((statement) => compileStatement(statement, scope));
  return (a) => {
    for (const execute of body) {
      charge();
      const signal = execute(a);
      if (signal !== NEXT) return signal;
    }
    return NEXT;
  };
}

/** Initializes a scope's variables. */
function compileLoads(symbols: Symbols): (activation: Activation) => void {
  const loads = [...symbols.loads].filter(([, load]) => load.kind !== "parameter");
  const { level } = symbols.scope;
  return (a) => {
    for (const [variable, load] of loads) a.variables[variable.index] = startValue(a, level, load);
  };
}

function startValue(activation: Activation, level: number, load: Load): Value | undefined {
  if (load.kind === "context") return activation.resolve(load.name);
  if (load.kind !== "alias") return undefined;
  return holder(activation, level, load.variable).variables[load.variable.index];
}

/** A nested scope of the same function. */
function inner(scope: Scope, tag?: string): Scope {
  const symbols = new Symbols(scope.symbols.scope, scope.symbols, tag);
  return { symbols, soft: scope.soft, top: false, inLoop: scope.inLoop };
}

function compileStatement(statement: Statement, scope: Scope): Execute {
  switch (statement.kind) {
    case "text": {
      const { text } = statement;
      return (a) => {
        a.write(text);
        return NEXT;
      };
    }
    case "output": {
      const value = compileExpression(statement.value, scope);
      return at(statement.line, (a) => a.write(toText(value(a))));
    }
    case "set": {
      const value = compileExpression(statement.value, scope);
      const assign = compileTarget(statement.target, scope);
      const check = compileNamespaceChecks(statement.target, scope);
      return at(statement.line, (a) => {
        check(a);
        assign(a, value(a));
      });
    }
    case "if":
      return compileIf(statement, scope);
    case "for":
      return compileFor(statement, scope);
    case "macro":
      return compileMacro(statement, scope);
    case "call block":
      return compileCallBlock(statement, scope);
    case "generation":
      return compileGeneration(statement.body, scope);
    case "set block":
      return compileSetBlock(statement, scope);
    case "filter block":
      return compileFilterBlock(statement, scope);
    case "with":
      return compileWith(statement, scope);
    case "autoescape": {
      const within = inner(scope);
      within.symbols.statements(statement.body);
      return compileFunction(statement.body, within);
    }
    case "block":
      return compileBlock(statement, scope);
    case "break":
    case "continue": {
      if (!scope.inLoop)
        throw new TemplateFault("TemplateSyntaxError", `'${statement.kind}' outside loop`, statement.line);
      const signal = statement.kind === "break" ? BREAK : CONTINUE;
      return () => signal;
    }
  }
}

/** A statement that always ends normally. */
function at(line: number, work: (activation: Activation) => void): Execute {
  return (a) => {
    a.run.line = line;
    work(a);
    return NEXT;
  };
}

function compileIf(node: IfNode, scope: Scope): Execute {
  const soft = { ...scope, soft: true };
  const branches = [node, ...node.elifs].map(({ line, test, body }) => ({
    line,
    test: compileExpression(test, soft),
    body: compileBody(body, soft),
  }));
  const otherwise = compileBody(node.otherwise, soft);
  return (a) => {
    for (const { line, test, body } of branches) {
      a.run.line = line;
      if (isTrue(test(a))) return body(a);
    }
    return otherwise(a);
  };
}

/** Runs the iterations of a loop; `depth` counts recursive calls. */
type RunLoop = (activation: Activation, items: Value, depth: number, recurse: Recurse | null) => Signal;

function compileFor(node: ForNode, scope: Scope): Execute {
  if (targetNames(node.target).includes("loop") || someStatement([...node.body, ...node.otherwise], setsLoop))
    throw new TemplateFault(
      "TemplateAssertionError",
      "Can't assign to special loop variable in for-loop target",
      node.line,
    );
  const iterable = compileExpression(node.iterable, scope);
  const { line } = node;
  if (!node.recursive) {
    const run = compileRounds(node, scope);
    return (a) => {
      a.run.line = line;
      return run(a, iterable(a), 0, null);
    };
  }
  const within = new FunctionScope(scope.symbols.scope);
  const run = compileRounds(node, { ...scope, symbols: new Symbols(within, scope.symbols) });
  const render = (outer: Activation, items: Value, depth: number): string => {
    enter();
    const activation = new Activation(outer.run, outer, within.size);
    run(activation, items, depth, (more, deeper) => render(outer, more, deeper));
    leave();
    return activation.output;
  };
  return at(line, (a) => a.write(render(a, iterable(a), 0)));
}

function setsLoop(statement: Statement): boolean {
  return (
    (statement.kind === "set" || statement.kind === "set block" || statement.kind === "for") &&
    targetNames(statement.target).includes("loop")
  );
}

function compileRounds(node: ForNode, outer: Scope): RunLoop {
  const scope = { ...inner(outer), inLoop: true };
  const isExtended =
    node.recursive ||
    undeclared(node.body, ["loop"]).has("loop") ||
    someStatement(node.body, (s) => s.kind === "block" && s.scoped);
  const loopVariable = isExtended ? scope.symbols.parameter("loop") : null;
  scope.symbols.target(node.target, true);
  scope.symbols.statements(node.body);
  const filter = node.test ? compileLoopTest(node, node.test, outer) : null;
  const assign = compileTarget(node.target, scope);
  const body = compileFunction(node.body, scope);
  const otherwise = node.otherwise.length > 0 ? compileElse(node, outer) : null;
  return (a, items, depth, recurse) => {
    const chosen = filter ? filter(a, items) : items;
    let ran = false;
    const round = (value: Value): Signal => {
      charge();
      assign(a, value);
      const signal = body(a);
      // An iteration that ends by `break` or `continue` does not set `ran`: jinja2 clears its flag for `else` after the body.
      if (signal === NEXT) ran = true;
      return signal;
    };
    if (loopVariable) runWithLoop(a, new Loop(chosen, recurse, depth), loopVariable, round);
    else for (const value of iterate(chosen)) if (round(value) === BREAK) break;
    return ran || !otherwise ? NEXT : otherwise(a);
  };
}

function runWithLoop(activation: Activation, loop: Loop, variable: Variable, round: (value: Value) => Signal): void {
  for (let value = loop.next(); value !== undefined; value = loop.next()) {
    activation.variables[variable.index] = loop;
    if (round(value) === BREAK) break;
  }
}

function compileElse(node: ForNode, outer: Scope): Execute {
  const scope = inner(outer);
  scope.symbols.statements(node.otherwise);
  return compileFunction(node.otherwise, scope);
}

/** Compiles a loop's `if` to a filter of its items. It has a scope of its own, since `loop.nextitem` looks ahead. */
function compileLoopTest(
  node: ForNode,
  test: Expression,
  outer: Scope,
): (activation: Activation, items: Value) => Value {
  const scope = inner(outer, "t");
  scope.symbols.target(node.target, true);
  scope.symbols.expression(test);
  const load = compileLoads(scope.symbols);
  const assign = compileTarget(node.target, scope);
  const holds = compileExpression(test, scope);
  return (a, items) => {
    function* passing(): Generator<Value> {
      load(a);
      for (const value of iterate(items)) {
        charge();
        assign(a, value);
        if (isTrue(holds(a))) yield value;
      }
    }
    return new PyIterator(passing(), "generator object");
  };
}

/** Compiles parameters and body of a macro or call block. */
function compileCallee(name: string | null, { parameters, body }: Signature, outer: Scope, line: number) {
  const symbols = new Symbols(new FunctionScope(outer.symbols.scope), outer.symbols);
  const scope: Scope = { symbols, soft: outer.soft, top: false, inLoop: false };
  const names = parameters.map((parameter) => parameter.name);
  const special = undeclared(body, ["caller", "kwargs", "varargs"]);
  const takes = (special_: string) => special.has(special_) && !names.includes(special_);
  if (special.has("caller") && names.includes("caller") && !parameters[names.indexOf("caller")]!.fallback)
    throw new TemplateFault(
      "TemplateAssertionError",
      'When defining macros or call blocks the special "caller" argument must be omitted or be given a default.',
      line,
    );
  const extra = ["caller", "kwargs", "varargs"].filter(takes);
  const variables = [...names, ...extra].map((parameter) => symbols.parameter(parameter));
  for (const { fallback } of parameters) symbols.expression(fallback);
  symbols.statements(body);
  const defaults = parameters.map(({ name: parameter, fallback }, i) => ({
    index: variables[i]!.index,
    evaluate: fallback ? compileExpression(fallback, scope) : missingParameter(parameter),
  }));
  const execute = compileFunction(body, scope);
  const load = compileLoads(symbols);
  const shape: MacroShape = {
    name,
    parameters: names,
    takesKeywords: takes("kwargs"),
    takesRest: takes("varargs"),
    takesCaller: special.has("caller"),
  };
  const make = (parent: Activation) =>
    new Macro(shape, (args) => {
      const activation = new Activation(parent.run, parent, symbols.scope.size);
      load(activation);
      for (let i = 0; i < args.length; i++) activation.variables[variables[i]!.index] = args[i];
      for (const { index, evaluate } of defaults)
        if (activation.variables[index] === undefined) activation.variables[index] = evaluate(activation);
      execute(activation);
      return activation.output;
    });
  return { make };
}

function missingParameter(name: string): Evaluate {
  return () => new Undefined(() => `parameter '${name}' was not provided`);
}

function compileMacro(node: MacroNode, scope: Scope): Execute {
  const { make } = compileCallee(node.name, node, scope, node.line);
  const assign = compileTarget({ kind: "name", name: node.name, line: node.line, depth: 1 }, scope);
  return at(node.line, (a) => assign(a, make(a)));
}

function compileCallBlock(node: CallBlockNode, scope: Scope): Execute {
  const { make } = compileCallee(null, node, scope, node.line);
  const call = compileCall(node.call, scope, make);
  return at(node.line, (a) => a.write(toText(call(a))));
}

/** `{% generation %}` marks a model's own text, for training; it renders as a call block that is called at once. */
function compileGeneration(body: readonly Statement[], scope: Scope): Execute {
  const { make } = compileCallee(null, { parameters: [], body }, scope, 0);
  return (a) => {
    a.write(make(a).call([], NO_KEYWORDS));
    return NEXT;
  };
}

/** Runs a body and passes its output to `use`; the output is dropped if `break` or `continue` left the body. */
function captured(body: Execute, use: (activation: Activation, text: string) => void): Execute {
  return (a) => {
    let signal: Signal = NEXT;
    const text = a.capture(() => {
      signal = body(a);
    });
    if (signal === NEXT) use(a, text);
    return signal;
  };
}

/** Compiles a filter block: a chain of filters applied to the block's output. */
function compileTextFilter(node: FilterNode, scope: Scope, text: Evaluate): Evaluate {
  return compileFilter(node, scope, node.input ? compileTextFilter(node.input as FilterNode, scope, text) : text);
}

function compileSetBlock(node: SetBlockNode, scope: Scope): Execute {
  const within = inner(scope);
  within.symbols.statements(node.body);
  within.symbols.expression(node.filter);
  const assign = compileTarget(node.target, scope);
  const check = compileNamespaceChecks(node.target, scope);
  const { index } = scope.symbols.scope.temporary();
  const filter = node.filter && compileTextFilter(node.filter, within, (a) => a.variables[index]!);
  return captured(compileFunction(node.body, within), (a, text) => {
    a.run.line = node.line;
    check(a);
    a.variables[index] = text;
    assign(a, filter ? filter(a) : text);
  });
}

function compileFilterBlock(node: FilterBlockNode, scope: Scope): Execute {
  const within = inner(scope);
  within.symbols.statements(node.body);
  within.symbols.expression(node.filter);
  const { index } = scope.symbols.scope.temporary();
  const filter = compileTextFilter(node.filter, within, (a) => a.variables[index]!);
  return captured(compileFunction(node.body, within), (a, text) => {
    a.run.line = node.line;
    a.variables[index] = text;
    a.write(toText(filter(a)));
  });
}

function compileWith(node: WithNode, scope: Scope): Execute {
  const within = inner(scope);
  for (const { target } of node.targets) within.symbols.target(target, true);
  within.symbols.statements(node.body);
  const sets = node.targets.map(({ target, value }) => ({
    assign: compileTarget(target, within),
    value: compileExpression(value, scope),
  }));
  const body = compileFunction(node.body, within);
  return (a) => {
    a.run.line = node.line;
    for (const { assign, value } of sets) assign(a, value(a));
    return body(a);
  };
}

/** A block sees variables of the template's top level only, unless it is scoped. */
function compileBlock(node: BlockNode, scope: Scope): Execute {
  const within = node.scoped
    ? inner(scope)
    : { symbols: new Symbols(new FunctionScope(null), null), soft: false, top: false, inLoop: false };
  within.symbols.statements(node.body);
  const body = compileFunction(node.body, within);
  if (node.scoped) return body;
  return at(node.line, (a) => {
    const activation = new Activation(a.run, null, within.symbols.scope.size);
    body(activation);
    a.write(activation.output);
  });
}
