/** Parses a template's source to its statements. */
import { TemplateFault } from "./faults.ts";
import { type Token, tokenize } from "./lexer.ts";
import { enter, leave } from "./limits.ts";
import { ExpressionParser } from "./parse-expression.ts";
import type { CallNode, FilterNode, IfNode, Parameter, Statement } from "./syntax.ts";
import { TokenStream } from "./token-stream.ts";

/** Parses a template. TemplateFault of kind TemplateSyntaxError for a syntax error. */
export function parse(source: string): Statement[] {
  return new Parser(new TokenStream(tokenize(source))).template();
}

/** Statements that refer to other templates, which a chat template cannot have. */
const OTHER_TEMPLATES = ["include", "import", "from", "extends"];

class Parser extends ExpressionParser {
  /** Tags that could end the open blocks, for messages. */
  readonly #ends: string[][] = [];
  readonly #blocks = new Set<string>();

  template(): Statement[] {
    return this.#statements(null);
  }

  /** Parses statements up to a tag that begins with one of the names `ends`; that name is then the current token. */
  #statements(ends: string[] | null): Statement[] {
    const body: Statement[] = [];
    enter();
    if (ends) this.#ends.push(ends);
    while (!this.stream.is("eof")) {
      const { type, value, line } = this.stream.next();
      if (type === "data") body.push({ kind: "text", text: value as string, line });
      else if (type === "{{") {
        body.push({ kind: "output", value: this.tuple(), line });
        this.stream.expect("}}");
      } else {
        if (ends && this.stream.isName(...ends)) break;
        body.push(...this.#statement());
        this.stream.expect("%}");
      }
    }
    if (ends) this.#ends.pop();
    leave();
    return body;
  }

  /**
   * Parses the body of a block tag. The name of its end tag is then the current token; it is skipped if only one was allowed.
   */
  #body(...ends: string[]): Statement[] {
    this.stream.skipIf(":");
    this.stream.expect("%}");
    const body = this.#statements(ends);
    if (this.stream.is("eof")) {
      const wanted = ends.map((end) => `'${end}'`).join(" or ");
      this.stream.fail(`Unexpected end of template. Jinja was looking for the following tags: ${wanted}.`);
    }
    if (ends.length === 1) this.stream.next();
    return body;
  }

  #statement(): Statement[] {
    const token = this.stream.current;
    if (token.type !== "name") this.stream.fail("tag name expected");
    this.stream.next();
    const { line } = token;
    switch (token.value) {
      case "for":
        return [this.#for(line)];
      case "if":
        return [this.#if(line)];
      case "set":
        return [this.#set(line)];
      case "macro": {
        const name = this.stream.expectName();
        return [{ kind: "macro", name, parameters: this.#parameters(), body: this.#body("endmacro"), line }];
      }
      case "call":
        return [this.#callBlock(line)];
      case "filter":
        return [{ kind: "filter block", filter: this.filter(null, true)!, body: this.#body("endfilter"), line }];
      case "with":
        return [this.#with(line)];
      case "block":
        return [this.#block(line)];
      case "print":
        return this.#print(line);
      case "autoescape":
        return [this.#autoescape(line)];
      case "generation":
        return [{ kind: "generation", body: this.#body("endgeneration"), line }];
      case "break":
      case "continue":
        return [{ kind: token.value, line }];
    }
    return this.#unknown(token);
  }

  #unknown({ value, line }: Token): never {
    if (OTHER_TEMPLATES.includes(value as string))
      throw new TemplateFault(
        "UnsupportedError",
        `{% ${value} %} needs other templates; a chat template has none`,
        line,
      );
    const ends = this.#ends.at(-1);
    const wanted = ends
      ? ` Jinja was looking for the following tags: ${ends.map((end) => `'${end}'`).join(" or ")}.`
      : "";
    this.stream.fail(`Encountered unknown tag '${value}'.${wanted}`, line);
  }

  #for(line: number): Statement {
    const target = this.target({ end: "in" });
    this.stream.expectName("in");
    const iterable = this.tuple({ withCondition: false, end: "recursive" });
    const test = this.stream.skipIfName("if") ? this.expression() : null;
    const recursive = this.stream.skipIfName("recursive");
    const body = this.#body("endfor", "else");
    const otherwise = this.stream.next().value === "else" ? this.#body("endfor") : [];
    return { kind: "for", target, iterable, test, recursive, body, otherwise, line };
  }

  #if(line: number): Statement {
    const test = this.tuple({ withCondition: false });
    const body = this.#body("elif", "else", "endif");
    const elifs: IfNode["elifs"][number][] = [];
    for (;;) {
      const { value, line: at } = this.stream.next();
      if (value === "elif") {
        const condition = this.tuple({ withCondition: false });
        elifs.push({ line: at, test: condition, body: this.#body("elif", "else", "endif") });
      } else return { kind: "if", test, body, elifs, otherwise: value === "else" ? this.#body("endif") : [], line };
    }
  }

  #set(line: number): Statement {
    const target = this.target({ withNamespace: true });
    if (this.stream.skipIf("=")) return { kind: "set", target, value: this.tuple(), line };
    const filter = this.filter(null) as FilterNode | null;
    return { kind: "set block", target, filter, body: this.#body("endset"), line };
  }

  #parameters(): Parameter[] {
    this.stream.expect("(");
    const parameters: Parameter[] = [];
    while (!this.stream.is(")")) {
      if (parameters.length > 0) this.stream.expect(",");
      const name = this.stream.expectName();
      const fallback = this.stream.skipIf("=") ? this.expression() : null;
      if (!fallback && parameters.at(-1)?.fallback) this.stream.fail("non-default argument follows default argument");
      if (parameters.some((parameter) => parameter.name === name)) this.stream.fail(`duplicate argument '${name}'`);
      parameters.push({ name, fallback });
    }
    this.stream.expect(")");
    return parameters;
  }

  #callBlock(line: number): Statement {
    const parameters = this.stream.is("(") ? this.#parameters() : [];
    const call = this.expression();
    if (call.kind !== "call") this.stream.fail("expected call", line);
    return { kind: "call block", parameters, call: call as CallNode, body: this.#body("endcall"), line };
  }

  #with(line: number): Statement {
    const targets = [];
    while (!this.stream.is("%}")) {
      if (targets.length > 0) this.stream.expect(",");
      const target = this.target();
      this.stream.expect("=");
      targets.push({ target, value: this.expression() });
    }
    return { kind: "with", targets, body: this.#body("endwith"), line };
  }

  #block(line: number): Statement {
    const name = this.stream.expectName();
    if (this.#blocks.has(name)) this.stream.fail(`block '${name}' defined twice`, line);
    this.#blocks.add(name);
    const scoped = this.stream.skipIfName("scoped");
    const body = this.#body("endblock");
    this.stream.skipIfName(name);
    return { kind: "block", name, scoped, body, line };
  }

  #print(line: number): Statement[] {
    const outputs: Statement[] = [];
    while (!this.stream.is("%}")) {
      if (outputs.length > 0) this.stream.expect(",");
      outputs.push({ kind: "output", value: this.expression(), line });
    }
    return outputs;
  }

  /** Parses {% autoescape %}; only false is supported, which is the default: chat templates make no HTML. */
  #autoescape(line: number): Statement {
    const value = this.expression();
    if (value.kind !== "constant" || value.value)
      throw new TemplateFault("UnsupportedError", "{% autoescape %} is supported with false only", line);
    return { kind: "autoescape", body: this.#body("endautoescape"), line };
  }
}
