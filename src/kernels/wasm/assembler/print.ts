/** Prints functions as folded WebAssembly text, for reading and for tests. */
import type { Body, FunctionCode, FunctionType, Node } from "./expression.ts";
import type { Module } from "./module.ts";
import type { ValueType } from "./opcodes.ts";

const INDENT = "  ";

/** A module as text, in which functions and locals are `$name`. */
export function printModule({ functions, options }: Module): string {
  const { memory, isWide, imports, hasTable } = options;
  const pointer = isWide ? "i64" : "i32";
  const shared = memory.isShared ? " shared" : "";
  const limits = `${isWide ? "i64 " : ""}${memory.initialPages} ${memory.maximumPages}${shared}`;
  const lines = [
    `(import "env" "memory" (memory ${limits}))`,
    ...(hasTable ? ['(import "env" "table" (table 0 funcref))'] : []),
    ...imports.map((callable) => {
      const type = new Printer(pointer).signature(callable).join(" ");
      return `(import "env" "${callable.name}" (func $${callable.name} ${type}))`;
    }),
    ...functions.map((code) => printFunction(code, pointer)),
  ];
  return `(module\n${indent(lines.join("\n"))})\n`;
}

/** A function as text. */
export function printFunction(code: FunctionCode, pointer: "i32" | "i64"): string {
  const printer = new Printer(pointer);
  const { name, params, locals, body, returned, result } = code;
  const count = Object.keys(params).length;
  const declare = (kind: string, from: number, to?: number) =>
    locals.slice(from, to).map((local) => `(${kind} $${local.name} ${printer.type(local.type)})`);
  const head = [`(func $${name} (export "${name}")`, ...declare("param", 0, count)];
  if (result) head.push(`(result ${printer.type(result)})`);
  const variables = declare("local", count);
  const lines = [...(variables.length > 0 ? [variables.join(" ")] : []), ...printer.body(body)];
  if (returned) lines.push(printer.node(returned.node));
  return `${head.join(" ")}\n${indent(lines.join("\n"))})`;
}

class Printer {
  readonly #pointer: "i32" | "i64";

  constructor(pointer: "i32" | "i64") {
    this.#pointer = pointer;
  }

  type(type: ValueType): string {
    return type === "ptr" ? this.#pointer : type;
  }

  signature({ params, result }: FunctionType): string[] {
    const types = Object.values(params).map((type) => `(param ${this.type(type)})`);
    return result ? [...types, `(result ${this.type(result)})`] : types;
  }

  body(body: Body): string[] {
    return body.flatMap((item) => ("node" in item ? [this.node(item.node)] : this.body(item)));
  }

  node(node: Node): string {
    switch (node.kind) {
      case "op":
        return this.#folded([node.name.replace(/^ptr\./, `${this.#pointer}.`), ...immediatesOf(node)], node.operands);
      case "const":
        return `(${this.type(node.type)}.const ${this.#number(node.type, node.value)})`;
      case "vector":
        return `(v128.const i8x16 ${node.bytes.join(" ")})`;
      case "shuffle":
        return this.#folded(["i8x16.shuffle", ...node.lanes], node.operands);
      case "get":
        return `(local.get $${node.local.name})`;
      case "set":
      case "tee":
        return this.#folded([`local.${node.kind}`, `$${node.local.name}`], [node.value]);
      case "widen":
        return this.#pointer === "i64" ? this.#folded(["i64.extend_i32_u"], [node.value]) : this.node(node.value);
      case "select":
        return this.#folded(["select", `(result ${this.type(node.type)})`], node.operands);
      case "drop":
        return this.#folded(["drop"], [node.value]);
      case "call":
        return this.#folded(["call", `$${node.target.name}`], node.operands);
      case "callIndirect": {
        return this.#folded(["call_indirect", ...this.signature(node.type)], node.operands);
      }
      default:
        return this.#control(node);
    }
  }

  #number(type: Exclude<ValueType, "v128">, value: number | bigint): string {
    const real = this.type(type);
    if (real === "i64") return String(value);
    if (real === "i32") return String(Number(value) | 0);
    const float = real === "f32" ? Math.fround(Number(value)) : Number(value);
    if (Number.isNaN(float)) return "nan";
    const sign = float < 0 || Object.is(float, -0) ? "-" : "";
    return `${sign}${Number.isFinite(float) ? Math.abs(float) : "inf"}`;
  }

  #folded(words: readonly (string | number)[], operands: readonly Node[]): string {
    return `(${[...words, ...operands.map((operand) => this.node(operand))].join(" ")})`;
  }

  #control(node: Extract<Node, { kind: "if" | "doWhile" | "whileDo" }>): string {
    const inner = (body: Body) => indent(this.body(body).join("\n"));
    if (node.kind === "doWhile")
      return `(loop $again\n${inner(node.body)}\n${INDENT}(br_if $again ${this.node(node.condition)}))`;
    if (node.kind === "whileDo") {
      const test = `(br_if $done (i32.eqz ${this.node(node.condition)}))`;
      return `(block $done (loop $again\n${INDENT}${test}\n${inner(node.body)}\n${INDENT}(br $again)))`;
    }
    const otherwise = node.otherwise ? `\n${INDENT}(else\n${indent(inner(node.otherwise))})` : "";
    return `(if ${this.node(node.condition)}\n${INDENT}(then\n${indent(inner(node.then))})${otherwise})`;
  }
}

function immediatesOf({ name, immediates }: Extract<Node, { kind: "op" }>): (string | number)[] {
  const isLane = name.includes("extract_lane") || name.includes("replace_lane");
  if (isLane) return [...immediates];
  const isStoreLane = name.endsWith("_lane");
  const offset = isStoreLane ? immediates[1] : immediates[0];
  return [...(offset ? [`offset=${offset}`] : []), ...(isStoreLane ? [immediates[0]!] : [])];
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, INDENT);
}
