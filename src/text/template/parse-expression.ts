/** Parses expressions of templates, with the precedences of jinja2 3.1.6. */
import { checkNesting, enter, leave } from "./limits.ts";
import type { Arguments, Expression, FilterNode, Target } from "./syntax.ts";
import { describeToken, type TokenStream } from "./token-stream.ts";

const COMPARISONS = new Set(["==", "!=", "<", "<=", ">", ">="]);
const NO_ARGUMENTS: Arguments = { positional: [], keywords: [], spread: null, keywordSpread: null };
/** Token types that can begin a test's argument without parentheses. */
const ARGUMENT_STARTS = new Set(["name", "string", "integer", "float", "(", "[", "{"]);

/** Depth of a node with these children, checked against the limit. */
function over(...children: (Expression | null | readonly Expression[])[]): number {
  let depth = 0;
  for (const child of children.flat() as (Expression | null)[]) if (child && child.depth > depth) depth = child.depth;
  checkNesting(depth + 1);
  return depth + 1;
}

function overArguments(args: Arguments): number {
  const { positional, keywords, spread, keywordSpread } = args;
  return over(
    positional,
    keywords.map(({ value }) => value),
    spread,
    keywordSpread,
  );
}

export class ExpressionParser {
  protected readonly stream: TokenStream;

  constructor(stream: TokenStream) {
    this.stream = stream;
  }

  expression(withCondition = true): Expression {
    enter();
    const result = withCondition ? this.#condition() : this.#or();
    leave();
    return result;
  }

  /** Parses an expression, or a tuple where commas follow. */
  tuple({
    withCondition = true,
    parenthesized = false,
    end = undefined as string | undefined,
    parse = () => this.expression(withCondition),
  } = {}): Expression {
    const line = this.stream.line;
    const items: Expression[] = [];
    let isTuple = false;
    for (;;) {
      if (items.length > 0) this.stream.expect(",");
      if (this.#endsTuple(end)) break;
      items.push(parse());
      if (!this.stream.is(",")) break;
      isTuple = true;
    }
    if (isTuple || (items.length === 0 && parenthesized)) return { kind: "tuple", items, line, depth: over(items) };
    if (items.length === 0) this.stream.fail(`Expected an expression, got '${describeToken(this.stream.current)}'`);
    return items[0]!;
  }

  #endsTuple(end: string | undefined): boolean {
    const { type } = this.stream.current;
    return type === "}}" || type === "%}" || type === ")" || (end !== undefined && this.stream.isName(end));
  }

  /** Parses an assignment target; `ns.attribute` only with `withNamespace`. */
  target({ withNamespace = false, end = undefined as string | undefined } = {}): Target {
    const target = this.tuple({ end, parse: () => this.#primary(withNamespace) });
    this.#checkTarget(target);
    return target as Target;
  }

  #checkTarget(target: Expression): void {
    const reserved = ["true", "false", "none", "True", "False", "None"];
    if (target.kind === "tuple") for (const item of target.items) this.#checkTarget(item);
    else if (target.kind !== "namespace" && (target.kind !== "name" || reserved.includes(target.name)))
      this.stream.fail(`can't assign to '${target.kind === "constant" ? "const" : target.kind}'`, target.line);
  }

  #condition(): Expression {
    let line = this.stream.line;
    let result = this.#or();
    while (this.stream.skipIfName("if")) {
      const test = this.#or();
      const otherwise = this.stream.skipIfName("else") ? this.expression() : null;
      result = { kind: "condition", test, value: result, otherwise, line, depth: over(test, result, otherwise) };
      line = this.stream.line;
    }
    return result;
  }

  #binary(operator: string, left: Expression, right: Expression, line: number): Expression {
    return { kind: "binary", operator, left, right, line, depth: over(left, right) };
  }

  #or(): Expression {
    let left = this.#and();
    for (let line = this.stream.line; this.stream.skipIfName("or"); line = this.stream.line)
      left = this.#binary("or", left, this.#and(), line);
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    for (let line = this.stream.line; this.stream.skipIfName("and"); line = this.stream.line)
      left = this.#binary("and", left, this.#not(), line);
    return left;
  }

  #not(): Expression {
    if (!this.stream.isName("not")) return this.#compare();
    const { line } = this.stream.next();
    enter();
    const operand = this.#not();
    leave();
    return { kind: "unary", operator: "not", operand, line, depth: over(operand) };
  }

  #compare(): Expression {
    const line = this.stream.line;
    const first = this.#sum();
    const rest: { operator: string; operand: Expression }[] = [];
    for (;;) {
      const { type } = this.stream.current;
      let operator = type;
      if (COMPARISONS.has(type)) this.stream.next();
      else if (this.stream.skipIfName("in")) operator = "in";
      else if (
        this.stream.isName("not") &&
        this.stream.following.type === "name" &&
        this.stream.following.value === "in"
      ) {
        this.stream.next();
        this.stream.next();
        operator = "not in";
      } else break;
      rest.push({ operator, operand: this.#sum() });
    }
    if (rest.length === 0) return first;
    return {
      kind: "compare",
      first,
      rest,
      line,
      depth: over(
        first,
        rest.map(({ operand }) => operand),
      ),
    };
  }

  #sum(): Expression {
    let left = this.#concat();
    while (this.stream.is("+") || this.stream.is("-")) {
      const { type, line } = this.stream.next();
      left = this.#binary(type, left, this.#concat(), line);
    }
    return left;
  }

  #concat(): Expression {
    const line = this.stream.line;
    const parts = [this.#product()];
    while (this.stream.skipIf("~")) parts.push(this.#product());
    return parts.length === 1 ? parts[0]! : { kind: "concat", parts, line, depth: over(parts) };
  }

  #product(): Expression {
    let left = this.#power();
    while (["*", "/", "//", "%"].includes(this.stream.current.type)) {
      const { type, line } = this.stream.next();
      left = this.#binary(type, left, this.#power(), line);
    }
    return left;
  }

  #power(): Expression {
    let left = this.#unary();
    while (this.stream.is("**")) {
      const { line } = this.stream.next();
      left = this.#binary("**", left, this.#unary(), line);
    }
    return left;
  }

  #unary(withFilter = true): Expression {
    const { type, line } = this.stream.current;
    let node: Expression;
    if (type === "-" || type === "+") {
      this.stream.next();
      enter();
      const operand = this.#unary(false);
      leave();
      node = { kind: "unary", operator: type, operand, line, depth: over(operand) };
    } else node = this.#primary();
    node = this.#postfix(node);
    return withFilter ? this.#filters(node) : node;
  }

  #primary(withNamespace = false): Expression {
    const { type, value, line } = this.stream.current;
    if (type === "name") return this.#name(withNamespace);
    if (type === "string") {
      let text = "";
      while (this.stream.is("string")) text += this.stream.next().value;
      return { kind: "constant", value: text, line, depth: 1 };
    }
    if (type === "[") return this.#list();
    if (type === "{") return this.#dict();
    if (type !== "integer" && type !== "float" && type !== "(")
      this.stream.fail(`unexpected '${describeToken(this.stream.current)}'`);
    this.stream.next();
    if (type === "integer") return { kind: "constant", value, line, depth: 1 };
    if (type === "float") return { kind: "float", value: value as number, line, depth: 1 };
    enter();
    const inner = this.tuple({ parenthesized: true, ...(withNamespace && { parse: () => this.#primary(true) }) });
    leave();
    this.stream.expect(")");
    return inner;
  }

  #name(withNamespace: boolean): Expression {
    const { value, line } = this.stream.next();
    const name = value as string;
    const constant = { kind: "constant", line, depth: 1 } as const;
    if (name === "true" || name === "True") return { ...constant, value: true };
    if (name === "false" || name === "False") return { ...constant, value: false };
    if (name === "none" || name === "None") return { ...constant, value: null };
    if (withNamespace && this.stream.skipIf("."))
      return { kind: "namespace", name, attribute: this.stream.expectName(), line, depth: 1 };
    return { kind: "name", name, line, depth: 1 };
  }

  #list(): Expression {
    const { line } = this.stream.next();
    const items: Expression[] = [];
    while (!this.stream.is("]")) {
      if (items.length > 0) this.stream.expect(",");
      if (this.stream.is("]")) break;
      items.push(this.expression());
    }
    this.stream.expect("]");
    return { kind: "list", items, line, depth: over(items) };
  }

  #dict(): Expression {
    const { line } = this.stream.next();
    const pairs: [Expression, Expression][] = [];
    while (!this.stream.is("}")) {
      if (pairs.length > 0) this.stream.expect(",");
      if (this.stream.is("}")) break;
      const key = this.expression();
      this.stream.expect(":");
      pairs.push([key, this.expression()]);
    }
    this.stream.expect("}");
    return { kind: "dict", pairs, line, depth: over(pairs.flat()) };
  }

  /** Parses attributes, items and calls after a value. */
  #postfix(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.stream.is(".")) node = this.#attribute(node);
      else if (this.stream.is("[")) node = this.#subscript(node);
      else if (this.stream.is("(")) node = this.#call(node);
      else return node;
    }
  }

  /** Parses filters, tests and calls after a value. */
  #filters(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.stream.is("|")) node = this.filter(node)!;
      else if (this.stream.isName("is")) node = this.#test(node);
      else if (this.stream.is("(")) node = this.#call(node);
      else return node;
    }
  }

  #attribute(object: Expression): Expression {
    const { line } = this.stream.next();
    const { type, value } = this.stream.current;
    if (type !== "name" && type !== "integer") this.stream.fail("expected name or number");
    this.stream.next();
    if (type === "name") return { kind: "attribute", object, name: value as string, line, depth: over(object) };
    const index: Expression = { kind: "constant", value, line, depth: 1 };
    return { kind: "item", object, index, line, depth: over(object) };
  }

  #subscript(object: Expression): Expression {
    const { line } = this.stream.next();
    const items: Expression[] = [];
    while (!this.stream.is("]")) {
      if (items.length > 0) this.stream.expect(",");
      items.push(this.#slice());
    }
    this.stream.expect("]");
    const index: Expression = items.length === 1 ? items[0]! : { kind: "tuple", items, line, depth: over(items) };
    return { kind: "item", object, index, line, depth: over(object, index) };
  }

  #slice(): Expression {
    const line = this.stream.line;
    const start = this.stream.is(":") ? null : this.expression();
    if (!this.stream.skipIf(":")) return start!;
    const isEnd = () => this.stream.is("]") || this.stream.is(",");
    const stop = this.stream.is(":") || isEnd() ? null : this.expression();
    const step = this.stream.skipIf(":") && !isEnd() ? this.expression() : null;
    return { kind: "slice", start, stop, step, line, depth: over(start, stop, step) };
  }

  #call(callee: Expression): Expression {
    const line = this.stream.line;
    const args = this.#arguments();
    return { kind: "call", callee, args, line, depth: Math.max(over(callee), overArguments(args)) };
  }

  #arguments(): Arguments {
    const { line } = this.stream.expect("(");
    const positional: Expression[] = [];
    const keywords: { name: string; value: Expression }[] = [];
    let spread: Expression | null = null;
    let keywordSpread: Expression | null = null;
    const ensure = (holds: boolean) => holds || this.stream.fail("invalid syntax for function call expression", line);
    for (let isFirst = true; !this.stream.is(")"); isFirst = false) {
      if (!isFirst) this.stream.expect(",");
      if (!isFirst && this.stream.is(")")) break;
      if (this.stream.skipIf("*")) {
        ensure(!spread && !keywordSpread);
        spread = this.expression();
      } else if (this.stream.skipIf("**")) {
        ensure(!keywordSpread);
        keywordSpread = this.expression();
      } else if (this.stream.is("name") && this.stream.following.type === "=") {
        ensure(!keywordSpread);
        const name = this.stream.expectName();
        this.stream.next();
        if (keywords.some((keyword) => keyword.name === name))
          this.stream.fail(`keyword argument repeated: ${name}`, line);
        keywords.push({ name, value: this.expression() });
      } else {
        ensure(!spread && !keywordSpread && keywords.length === 0);
        positional.push(this.expression());
      }
    }
    this.stream.expect(")");
    return { positional, keywords, spread, keywordSpread };
  }

  #dottedName(): string {
    let name = this.stream.expectName();
    while (this.stream.skipIf(".")) name += `.${this.stream.expectName()}`;
    return name;
  }

  /** Parses the filters that follow; with `inline`, the first has no "|" before it. */
  filter(input: Expression | null, inline = false): FilterNode | null {
    let node = input;
    for (let starts = inline; starts || this.stream.is("|"); starts = false) {
      if (!starts) this.stream.next();
      const line = this.stream.line;
      const name = this.#dottedName();
      const args = this.stream.is("(") ? this.#arguments() : NO_ARGUMENTS;
      node = { kind: "filter", input: node, name, args, line, depth: Math.max(over(node), overArguments(args)) };
    }
    return node as FilterNode | null;
  }

  #test(input: Expression): Expression {
    const { line } = this.stream.next();
    const negated = this.stream.skipIfName("not");
    const name = this.#dottedName();
    let args = NO_ARGUMENTS;
    if (this.stream.is("(")) args = this.#arguments();
    else if (ARGUMENT_STARTS.has(this.stream.current.type) && !this.stream.isName("else", "or", "and")) {
      if (this.stream.isName("is")) this.stream.fail("You cannot chain multiple tests with is");
      args = { ...NO_ARGUMENTS, positional: [this.#postfix(this.#primary())] };
    }
    const depth = Math.max(over(input), overArguments(args));
    const test: Expression = { kind: "test", input, name, args, line, depth };
    return negated ? { kind: "unary", operator: "not", operand: test, line, depth: depth + 1 } : test;
  }
}
