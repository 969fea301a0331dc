/** How parts of schemas become grammars together. */
import type { Node } from "./grammar.ts";

/** What parts of schemas are made with. */
export interface SchemaScope {
  /** The grammar of a schema; null where no value is one. */
  node(schema: unknown, at: string): Node | null;
  /** A rule of its own for a node. */
  define(node: Node): Node;
  /** A rule of its own that may refer to itself. */
  recursive(make: (self: Node) => Node): Node;
}
