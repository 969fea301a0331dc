/** The binary encoding of function bodies. */
import type { Body, Callable, FunctionType, Local, Node } from "./expression.ts";
import type { FunctionCode } from "./module.ts";
import { opcodes, structure, typeCodes, type ValueType } from "./opcodes.ts";

/** Unsigned LEB128. */
export function leb(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  bytes.push(rest);
  return bytes;
}

/** Signed LEB128. */
function signedLeb(value: number | bigint): number[] {
  if (value >= -64 && value < 64) return [Number(value) & 127];
  const bytes: number[] = [];
  for (let rest = BigInt(value); ; ) {
    const byte = Number(rest & 127n);
    rest >>= 7n;
    const isLast = (rest === 0n && byte < 64) || (rest === -1n && byte >= 64);
    bytes.push(isLast ? byte : byte | 128);
    if (isLast) return bytes;
  }
}

/** A vector of the format: a count and the items. */
export function vectorOf(items: readonly (readonly number[] | Uint8Array)[]): number[] {
  const bytes = leb(items.length);
  for (const item of items) for (const byte of item) bytes.push(byte);
  return bytes;
}

/** A name of the format. */
export function text(value: string): number[] {
  const bytes = [...new TextEncoder().encode(value)];
  return [...leb(bytes.length), ...bytes];
}

export interface EncoderContext {
  readonly isWide: boolean;
  typeIndex(type: FunctionType): number;
  indexOf(target: Callable): number;
}

/** Encodes functions of one module. */
export class FunctionEncoder {
  readonly #context: EncoderContext;
  #bytes: number[] = [];

  constructor(context: EncoderContext) {
    this.#context = context;
  }

  /** A function as the code section has it: its size, its locals, its instructions. */
  encode({ params, locals, body, returned }: FunctionCode): number[] {
    this.#bytes = [];
    this.#body(body);
    if (returned) this.#node(returned.node);
    const declared = runs(locals.slice(params.length)).map(({ type, count }) => [...leb(count), this.type(type)]);
    const content = [...vectorOf(declared), ...this.#bytes, structure.end];
    return [...leb(content.length), ...content];
  }

  type(type: ValueType): number {
    return typeCodes[type === "ptr" ? this.#pointer : type];
  }

  get #pointer(): "i32" | "i64" {
    return this.#context.isWide ? "i64" : "i32";
  }

  #body(body: Body): void {
    for (const item of body) {
      if ("node" in item) this.#node(item.node);
      else this.#body(item);
    }
  }

  #opcode(code: number): void {
    if (code < 256) this.#bytes.push(code);
    else this.#bytes.push(code >> 12, ...leb(code & 0xfff));
  }

  #node(node: Node): void {
    switch (node.kind) {
      case "op":
        this.#op(node);
        break;
      case "const":
        this.#constant(node.type, node.value);
        break;
      case "vector":
        this.#opcode(structure.v128Const);
        this.#bytes.push(...node.bytes);
        break;
      case "shuffle":
        this.#after(node.operands, structure.shuffle, ...node.lanes);
        break;
      case "get":
        this.#after([], structure.localGet, ...leb(node.local.index));
        break;
      case "set":
        this.#after([node.value], structure.localSet, ...leb(node.local.index));
        break;
      case "tee":
        this.#after([node.value], structure.localTee, ...leb(node.local.index));
        break;
      case "widen":
        this.#node(node.value);
        if (this.#context.isWide) this.#opcode(opcodes.get("i64.extend_i32_u")!.code);
        break;
      case "select":
        this.#after(node.operands, structure.select, 1, this.type(node.type));
        break;
      case "drop":
        this.#after([node.value], structure.drop);
        break;
      case "call":
        this.#after(node.operands, structure.call, ...leb(this.#context.indexOf(node.target)));
        break;
      case "callIndirect":
        this.#after(node.operands, structure.callIndirect, ...leb(this.#context.typeIndex(node.type)), 0);
        break;
      default:
        this.#control(node);
        break;
    }
  }

  /** Operands, an opcode and its immediates. */
  #after(operands: readonly Node[], code: number, ...immediates: number[]): void {
    for (const operand of operands) this.#node(operand);
    this.#opcode(code);
    this.#bytes.push(...immediates);
  }

  #op({ name, operands, immediates }: Extract<Node, { kind: "op" }>): void {
    const wide = this.#context.isWide && name.startsWith("ptr.") ? wideOf(name) : name;
    const { code, immediate, align } = opcodes.get(wide)!;
    const encoded = {
      none: () => [],
      memory: () => [...leb(align), ...leb(immediates[0] ?? 0)],
      lane: () => [immediates[0]!],
      memoryLane: () => [...leb(align), ...leb(immediates[1] ?? 0), immediates[0]!],
      memoryPair: () => [0, 0],
    }[immediate]();
    this.#after(operands, code, ...encoded);
  }

  #constant(type: Exclude<ValueType, "v128">, value: number | bigint): void {
    const real = type === "ptr" ? this.#pointer : type;
    if (real === "i32") this.#after([], structure.i32Const, ...signedLeb(Number(value) | 0));
    else if (real === "i64") this.#after([], structure.i64Const, ...signedLeb(value));
    else {
      const floats = real === "f32" ? Float32Array.of(Number(value)) : Float64Array.of(Number(value));
      const code = real === "f32" ? structure.f32Const : structure.f64Const;
      this.#after([], code, ...new Uint8Array(floats.buffer));
    }
  }

  #control(node: Extract<Node, { kind: "if" | "doWhile" | "whileDo" }>): void {
    const push = (...bytes: number[]) => this.#bytes.push(...bytes);
    if (node.kind === "if") {
      this.#node(node.condition);
      push(structure.if, structure.noResult);
      this.#body(node.then);
      if (node.otherwise) {
        push(structure.else);
        this.#body(node.otherwise);
      }
      push(structure.end);
    } else if (node.kind === "doWhile") {
      push(structure.loop, structure.noResult);
      this.#body(node.body);
      this.#node(node.condition);
      push(structure.brIf, 0, structure.end);
    } else {
      push(structure.block, structure.noResult, structure.loop, structure.noResult);
      this.#node(node.condition);
      this.#opcode(opcodes.get("i32.eqz")!.code);
      push(structure.brIf, 1);
      this.#body(node.body);
      push(structure.br, 0, structure.end, structure.end);
    }
  }
}

/** 64-bit instructions on addresses. */
function wideOf(name: string): string {
  return name.replace("ptr.", "i64.");
}

/** Neighbouring locals of one type, as the format counts them. */
function runs(locals: readonly Local<ValueType>[]): { type: ValueType; count: number }[] {
  const found: { type: ValueType; count: number }[] = [];
  for (const { type } of locals) {
    const last = found.at(-1);
    if (last?.type === type) last.count++;
    else found.push({ type, count: 1 });
  }
  return found;
}
