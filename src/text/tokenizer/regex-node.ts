/** Syntax trees of patterns. */
import type { CharacterSet } from "./character-set.ts";

export type Place =
  | "textStart"
  | "textEnd"
  | "finalEnd"
  | "lineStart"
  | "lineEnd"
  | "wordEdge"
  | "noWordEdge"
  | "searchStart";

export type Node =
  | { readonly kind: "character"; readonly codePoint: number; readonly ignoreCase: boolean }
  | { readonly kind: "set"; readonly set: CharacterSet }
  | { readonly kind: "sequence"; readonly nodes: readonly Node[] }
  | { readonly kind: "choice"; readonly nodes: readonly Node[] }
  | {
      readonly kind: "repeat";
      readonly node: Node;
      readonly least: number;
      readonly most: number;
      readonly mode: "greedy" | "lazy" | "possessive";
    }
  | { readonly kind: "group"; readonly index: number; readonly node: Node }
  | { readonly kind: "atomic"; readonly node: Node }
  | { readonly kind: "look"; readonly node: Node; readonly behind: boolean; readonly negative: boolean }
  | { readonly kind: "place"; readonly place: Place }
  | { readonly kind: "back"; readonly index: number };
