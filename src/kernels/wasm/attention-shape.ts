/** What attention code is specialised to, and what it is told when it runs. */
import { ArgumentBlock, type FieldsOf } from "./kernel-code.ts";

export interface AttentionShape {
  /** Queries of a block. */
  readonly queries: 1 | 4 | 8;
  /** Multiplies and adds in one instruction. */
  readonly isRelaxed: boolean;
  readonly cache: "f32" | "f16" | "int8";
  readonly hasWindow: boolean;
  readonly hasSoftcap: boolean;
}

export const attentionBlock = new ArgumentBlock({
  q: "ptr",
  k: "ptr",
  v: "ptr",
  keyCache: "ptr",
  valueCache: "ptr",
  /** Of caches of integers. */
  keyScales: "ptr",
  valueScales: "ptr",
  position: "ptr",
  y: "ptr",
  scores: "ptr",
  threadBytes: "ptr",
  tokens: "i32",
  kvHeads: "i32",
  /** Heads of queries for each head of keys. */
  ratio: "i32",
  headDim: "i32",
  capacity: "i32",
  /** Blocks of queries for each head of keys. */
  blocks: "i32",
  window: "i32",
  scale: "f32",
  softcap: "f32",
});
export type AttentionFields = FieldsOf<typeof attentionBlock>;

export function attentionKey({ queries, isRelaxed, cache, hasWindow, hasSoftcap }: AttentionShape): string {
  const marks = [isRelaxed ? "_relaxed" : "", hasWindow ? "_window" : "", hasSoftcap ? "_softcap" : ""];
  return `attention_${queries}_${cache}${marks.join("")}`;
}
