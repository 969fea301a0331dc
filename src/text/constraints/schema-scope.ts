/** What compilers of the parts of a schema share. */
import type { Node } from "./grammar.ts";

/** Functions of the schema compiler for its parts. */
export interface SchemaScope {
  /** Grammar of a schema; null where no value is valid. */
  node(schema: unknown, at: string): Node | null;
  /** Makes a node a rule of its own. */
  define(node: Node): Node;
  /** Makes a rule that may refer to itself. */
  recursive(make: (self: Node) => Node): Node;
}
