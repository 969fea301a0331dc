/** Encodes function bodies in WebAssembly's binary format. */
import { InvalidArgumentError } from "../../../errors.ts";
import type { ByteWriter } from "./bytes.ts";
import type { Body, Callable, FunctionCode, FunctionType, Local, Node } from "./expression.ts";
import { checkNarrow } from "./immediates.ts";
import { opcodes, structure, typeCodes, type ValueType } from "./opcodes.ts";

export interface EncoderContext {
  readonly isWide: boolean;
  typeIndex(type: FunctionType): number;
  indexOf(target: Callable): number;
}

/** Encodes functions of one module. */
export class FunctionEncoder {
  readonly #context: EncoderContext;
  readonly #out: ByteWriter;
  #locals: readonly Local<ValueType>[] = [];

  constructor(context: EncoderContext, out: ByteWriter) {
    this.#context = context;
    this.#out = out;
  }

  /** Encodes a function for the code section: size, locals, instructions. */
  encode({ params, locals, body, returned }: FunctionCode): void {
    this.#locals = locals;
    this.#out.sized(() => {
      const types = locals.slice(Object.keys(params).length).map(({ type }) => this.type(type));
      this.#out.vector(runs(types), ({ type, count }) => {
        this.#out.unsigned(count);
        this.#out.byte(type);
      });
      this.#body(body);
      if (returned) this.#node(returned.node);
      this.#out.byte(structure.end);
    });
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
    if (code < 256) this.#out.byte(code);
    else {
      this.#out.byte(code >> 12);
      this.#out.unsigned(code & 0xfff);
    }
  }

  #operands(operands: readonly Node[]): void {
    for (const operand of operands) this.#node(operand);
  }

  #node(node: Node): void {
    switch (node.kind) {
      case "op":
        this.#op(node);
        break;
      case "get":
        this.#local(structure.localGet, node.local);
        break;
      case "set":
      case "tee":
        this.#node(node.value);
        this.#local(node.kind === "set" ? structure.localSet : structure.localTee, node.local);
        break;
      case "const":
        this.#constant(node.type, node.value);
        break;
      case "vector":
        this.#opcode(structure.v128Const);
        this.#out.bytes(node.bytes);
        break;
      case "shuffle":
        this.#operands(node.operands);
        this.#opcode(structure.shuffle);
        this.#out.bytes(node.lanes);
        break;
      case "widen":
        this.#node(node.value);
        if (this.#context.isWide) this.#opcode(opcodes.get("i64.extend_i32_u")!.code);
        break;
      case "select":
        this.#operands(node.operands);
        this.#indexed(structure.select, 1);
        this.#out.byte(this.type(node.type));
        break;
      case "drop":
        this.#node(node.value);
        this.#opcode(structure.drop);
        break;
      case "call":
        this.#operands(node.operands);
        this.#indexed(structure.call, this.#context.indexOf(node.target));
        break;
      case "callIndirect":
        this.#operands(node.operands);
        this.#indexed(structure.callIndirect, this.#context.typeIndex(node.type));
        this.#out.byte(0);
        break;
      default:
        this.#control(node);
        break;
    }
  }

  /** Writes an opcode and an index. */
  #indexed(code: number, index: number): void {
    this.#out.byte(code);
    this.#out.unsigned(index);
  }

  #local(code: number, local: Local<ValueType>): void {
    if (this.#locals[local.index] !== local) throw new InvalidArgumentError(`${local.name}: is not of this function`);
    this.#indexed(code, local.index);
  }

  #op({ name, operands, immediates }: Extract<Node, { kind: "op" }>): void {
    const wide = this.#context.isWide && name.startsWith("ptr.") ? wideOf(name) : name;
    const { code, immediate, align } = opcodes.get(wide)!;
    this.#operands(operands);
    this.#opcode(code);
    switch (immediate) {
      case "none":
        break;
      case "memory":
        this.#memory(align, immediates[0]);
        break;
      case "lane":
        this.#out.byte(immediates[0]!);
        break;
      case "memoryLane":
        this.#memory(align, immediates[1]);
        this.#out.byte(immediates[0]!);
        break;
      case "memoryPair":
        this.#indexed(0, 0);
        break;
    }
  }

  #memory(align: number, offset = 0): void {
    if (!this.#context.isWide) checkNarrow("offset", offset);
    this.#indexed(align, offset);
  }

  #constant(type: Exclude<ValueType, "v128">, value: number | bigint): void {
    const real = type === "ptr" ? this.#pointer : type;
    if (type === "ptr" && !this.#context.isWide) checkNarrow("size", Number(value));
    if (real === "i32") {
      this.#out.byte(structure.i32Const);
      this.#out.signed(Number(value) | 0);
    } else if (real === "i64") {
      this.#out.byte(structure.i64Const);
      this.#out.signed64(BigInt.asIntN(64, BigInt(value)));
    } else {
      const floats = real === "f32" ? Float32Array.of(Number(value)) : Float64Array.of(Number(value));
      this.#out.byte(real === "f32" ? structure.f32Const : structure.f64Const);
      this.#out.bytes(new Uint8Array(floats.buffer));
    }
  }

  #control(node: Extract<Node, { kind: "if" | "doWhile" | "whileDo" }>): void {
    const out = this.#out;
    if (node.kind === "if") {
      this.#node(node.condition);
      out.bytes([structure.if, structure.noResult]);
      this.#body(node.then);
      if (node.otherwise) {
        out.byte(structure.else);
        this.#body(node.otherwise);
      }
      out.byte(structure.end);
    } else if (node.kind === "doWhile") {
      out.bytes([structure.loop, structure.noResult]);
      this.#body(node.body);
      this.#node(node.condition);
      out.bytes([structure.brIf, 0, structure.end]);
    } else {
      out.bytes([structure.block, structure.noResult, structure.loop, structure.noResult]);
      this.#node(node.condition);
      out.bytes([opcodes.get("i32.eqz")!.code, structure.brIf, 1]);
      this.#body(node.body);
      out.bytes([structure.br, 0, structure.end, structure.end]);
    }
  }
}

/** The 64-bit instruction for an instruction on addresses. */
function wideOf(name: string): string {
  return name.replace("ptr.", "i64.");
}

/** Run-length encoding of types, as the format has it for locals. */
function runs(types: readonly number[]): { type: number; count: number }[] {
  const found: { type: number; count: number }[] = [];
  for (const type of types) {
    const last = found.at(-1);
    if (last?.type === type) last.count++;
    else found.push({ type, count: 1 });
  }
  return found;
}
