/** What attention code is specialised to, and what it is told when it runs. */
import { ArgumentBlock, type FieldsOf } from "../kernel-code.ts";

export interface AttentionShape {
  /** Queries of a block. */
  readonly queries: 1 | 2 | 4;
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
  scratch: "ptr",
  /** Bytes of a part's scratch, or of a thread's where there is one part. */
  scratchBytes: "ptr",
  /** Parts of the positions, and spans of blocks of queries, each of some blocks and heads of keys. */
  parts: "i32",
  spans: "i32",
  spanGroups: "i32",
  spanHeads: "i32",
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
