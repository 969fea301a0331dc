/**
 * Resolves names to variables before rendering, as jinja2's idtracking.py does: a scope (template, loop, macro, `with`) has
 * variables for the names that it assigns, and for those that it is the first to read.
 */
import type { Arguments, Expression, Statement, Target } from "./syntax.ts";

/** Variables of one function: the template, a block, a macro, or a recursive loop. */
export class FunctionScope {
  readonly parent: FunctionScope | null;
  readonly level: number;
  readonly #variables = new Map<string, Variable>();

  constructor(parent: FunctionScope | null) {
    this.parent = parent;
    this.level = parent ? parent.level + 1 : 0;
  }

  get size(): number {
    return this.#variables.size;
  }

  /** The variable for a scope's identifier; sibling scopes with the same identifier share it. */
  variable(identifier: string): Variable {
    let variable = this.#variables.get(identifier);
    if (!variable) {
      variable = { scope: this, index: this.#variables.size };
      this.#variables.set(identifier, variable);
    }
    return variable;
  }

  /** A variable without a name. */
  temporary(): Variable {
    return this.variable(`t_${this.#variables.size}`);
  }
}

export interface Variable {
  readonly scope: FunctionScope;
  readonly index: number;
}

/** Initial value of a variable when its scope is entered. */
export type Load =
  | { readonly kind: "parameter" | "undefined" }
  | { readonly kind: "context"; readonly name: string }
  | { readonly kind: "alias"; readonly variable: Variable };

export class Symbols {
  readonly scope: FunctionScope;
  readonly parent: Symbols | null;
  readonly loads = new Map<Variable, Load>();
  readonly #level: number;
  /** Distinguishes scopes of one level that are alive at the same time. */
  readonly #tag: string;
  readonly #variables = new Map<string, Variable>();
  readonly #stores = new Set<string>();

  constructor(scope: FunctionScope, parent: Symbols | null, tag = "l") {
    this.scope = scope;
    this.parent = parent;
    this.#tag = tag;
    this.#level = parent ? parent.#level + 1 : 0;
  }

  #branch(): Symbols {
    const copy = new Symbols(this.scope, this.parent, this.#tag);
    for (const [name, variable] of this.#variables) copy.#variables.set(name, variable);
    for (const [variable, load] of this.loads) copy.loads.set(variable, load);
    for (const name of this.#stores) copy.#stores.add(name);
    return copy;
  }

  find(name: string): Variable | undefined {
    return this.#variables.get(name) ?? this.parent?.find(name);
  }

  #define(name: string, load: Load): Variable {
    const variable = this.scope.variable(`${this.#tag}_${this.#level}_${name}`);
    this.#variables.set(name, variable);
    this.loads.set(variable, load);
    return variable;
  }

  parameter(name: string): Variable {
    this.#stores.add(name);
    return this.#define(name, { kind: "parameter" });
  }

  load(name: string): void {
    if (!this.find(name)) this.#define(name, { kind: "context", name });
  }

  store(name: string): void {
    this.#stores.add(name);
    if (this.#variables.has(name)) return;
    const outer = this.parent?.find(name);
    this.#define(name, outer ? { kind: "alias", variable: outer } : { kind: "undefined" });
  }

  expression(expression: Expression | null): void {
    if (expression) for (const name of namesIn(expression)) this.load(name);
  }

  target(target: Target, asParameter = false): void {
    if (target.kind === "tuple") for (const item of target.items) this.target(item as Target, asParameter);
    else if (target.kind === "namespace") this.load(target.name);
    else if (asParameter) this.parameter(target.name);
    else this.store(target.name);
  }

  /** Registers the names in a scope's statements; nested scopes are handled on their own. */
  statements(statements: readonly Statement[]): void {
    for (const statement of statements) this.#statement(statement);
  }

  #statement(statement: Statement): void {
    switch (statement.kind) {
      case "output":
        this.expression(statement.value);
        break;
      case "set":
        this.expression(statement.value);
        this.target(statement.target);
        break;
      case "set block":
        this.target(statement.target);
        break;
      case "if": {
        const { test, body, elifs, otherwise } = statement;
        this.#if(test, [
          (branch) => branch.statements(body),
          (branch) => {
            for (const elif of elifs) branch.#if(elif.test, [(inner) => inner.statements(elif.body)]);
          },
          (branch) => branch.statements(otherwise),
        ]);
        break;
      }
      case "for":
        this.expression(statement.iterable);
        break;
      case "macro":
        this.store(statement.name);
        break;
      case "call block":
        this.expression(statement.call);
        break;
      case "filter block":
        this.expression(statement.filter);
        break;
      case "with":
        for (const { value } of statement.targets) this.expression(value);
    }
  }

  #if(test: Expression, visits: readonly ((branch: Symbols) => void)[]): void {
    this.expression(test);
    const branches = visits.map((visit) => {
      const branch = this.#branch();
      visit(branch);
      return branch;
    });
    const stores = new Set(branches.flatMap((branch) => [...branch.#stores]));
    for (const name of this.#stores) stores.delete(name);
    for (const branch of branches) {
      for (const [name, variable] of branch.#variables) this.#variables.set(name, variable);
      for (const [variable, load] of branch.loads) this.loads.set(variable, load);
      for (const name of branch.#stores) this.#stores.add(name);
    }
    // A name that only some branches assign is initialized to its outer value.
    for (const name of stores) {
      const outer = this.parent?.find(name);
      this.loads.set(this.find(name)!, outer ? { kind: "alias", variable: outer } : { kind: "context", name });
    }
  }
}

function argumentsOf({ positional, keywords, spread, keywordSpread }: Arguments): (Expression | null)[] {
  return [...positional, ...keywords.map(({ value }) => value), spread, keywordSpread];
}

function children(node: Expression): readonly (Expression | null)[] {
  switch (node.kind) {
    case "tuple":
    case "list":
      return node.items;
    case "dict":
      return node.pairs.flat();
    case "attribute":
      return [node.object];
    case "item":
      return [node.object, node.index];
    case "slice":
      return [node.start, node.stop, node.step];
    case "call":
      return [node.callee, ...argumentsOf(node.args)];
    case "filter":
    case "test":
      return [node.input, ...argumentsOf(node.args)];
    case "unary":
      return [node.operand];
    case "binary":
      return [node.left, node.right];
    case "concat":
      return node.parts;
    case "compare":
      return [node.first, ...node.rest.map(({ operand }) => operand)];
    case "condition":
      return [node.test, node.value, node.otherwise];
    default:
      return [];
  }
}

/** Names read by an expression. */
function* namesIn(node: Expression): Generator<string> {
  if (node.kind === "name") yield node.name;
  else for (const child of children(node)) if (child) yield* namesIn(child);
}

/** Expressions and bodies directly within a statement, in jinja2's order. */
function parts(statement: Statement): {
  expressions: (Expression | null)[];
  stores: string[];
  bodies: (readonly Statement[])[];
} {
  switch (statement.kind) {
    case "output":
      return { expressions: [statement.value], stores: [], bodies: [] };
    case "set":
      return { expressions: [statement.value], stores: targetNames(statement.target), bodies: [] };
    case "set block":
      return { expressions: [statement.filter], stores: targetNames(statement.target), bodies: [statement.body] };
    case "if":
      return {
        expressions: [statement.test, ...statement.elifs.map(({ test }) => test)],
        stores: [],
        bodies: [statement.body, ...statement.elifs.map(({ body }) => body), statement.otherwise],
      };
    case "for":
      return {
        expressions: [statement.iterable, statement.test],
        stores: targetNames(statement.target),
        bodies: [statement.body, statement.otherwise],
      };
    case "macro":
    case "call block":
      return {
        expressions: [
          ...(statement.kind === "call block" ? [statement.call] : []),
          ...statement.parameters.map(({ fallback }) => fallback),
        ],
        stores: statement.parameters.map(({ name }) => name),
        bodies: [statement.body],
      };
    case "filter block":
      return { expressions: [statement.filter], stores: [], bodies: [statement.body] };
    case "with":
      return {
        expressions: statement.targets.map(({ value }) => value),
        stores: statement.targets.flatMap(({ target }) => targetNames(target)),
        bodies: [statement.body],
      };
    case "generation":
    case "autoescape":
      return { expressions: [], stores: [], bodies: [statement.body] };
    default:
      return { expressions: [], stores: [], bodies: [] };
  }
}

export function targetNames(target: Target): string[] {
  if (target.kind === "tuple") return target.items.flatMap((item) => targetNames(item as Target));
  return target.kind === "name" ? [target.name] : [];
}

/** The names of `wanted` (loop, caller, varargs, kwargs) that statements read without having assigned them. */
export function undeclared(statements: readonly Statement[], wanted: readonly string[]): Set<string> {
  const names = new Set(wanted);
  const found = new Set<string>();
  const visit = (list: readonly Statement[]) => {
    for (const statement of list) {
      const { expressions, stores, bodies } = parts(statement);
      const forget = () => {
        for (const name of stores) names.delete(name);
      };
      // jinja2 visits a statement's assignments before its reads, except for the call of a call block.
      if (statement.kind !== "call block") forget();
      for (const expression of expressions)
        if (expression) for (const name of namesIn(expression)) if (names.has(name)) found.add(name);
      forget();
      for (const body of bodies) visit(body);
    }
  };
  visit(statements);
  return found;
}

/** Whether any statement, however deep, satisfies `condition`. */
export function someStatement(statements: readonly Statement[], condition: (statement: Statement) => boolean): boolean {
  return statements.some(
    (statement) => condition(statement) || parts(statement).bodies.some((body) => someStatement(body, condition)),
  );
}
