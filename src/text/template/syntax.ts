/** The syntax tree of a template. */

export type Target = NameNode | NamespaceTarget | TupleNode;

interface Node {
  readonly line: number;
}

/** `depth` counts the levels below the node, which limits recursion over the tree. */
interface ExpressionNode extends Node {
  readonly depth: number;
}

interface NameNode extends ExpressionNode {
  readonly kind: "name";
  readonly name: string;
}

/** `ns.attribute` as the target of `set`. */
interface NamespaceTarget extends ExpressionNode {
  readonly kind: "namespace";
  readonly name: string;
  readonly attribute: string;
}

interface TupleNode extends ExpressionNode {
  readonly kind: "tuple";
  readonly items: readonly Expression[];
}

export interface Arguments {
  readonly positional: readonly Expression[];
  readonly keywords: readonly { readonly name: string; readonly value: Expression }[];
  readonly spread: Expression | null;
  readonly keywordSpread: Expression | null;
}

export interface CallNode extends ExpressionNode {
  readonly kind: "call";
  readonly callee: Expression;
  readonly args: Arguments;
}

/** `input` is null for the first filter of a filter block, which takes the block's output. */
export interface FilterNode extends ExpressionNode {
  readonly kind: "filter";
  readonly input: Expression | null;
  readonly name: string;
  readonly args: Arguments;
}

interface SliceNode extends ExpressionNode {
  readonly kind: "slice";
  readonly start: Expression | null;
  readonly stop: Expression | null;
  readonly step: Expression | null;
}

export type Expression =
  | NameNode
  | NamespaceTarget
  | TupleNode
  | CallNode
  | FilterNode
  | SliceNode
  | (ExpressionNode & { readonly kind: "constant"; readonly value: null | boolean | number | bigint | string })
  | (ExpressionNode & { readonly kind: "float"; readonly value: number })
  | (ExpressionNode & { readonly kind: "list"; readonly items: readonly Expression[] })
  | (ExpressionNode & { readonly kind: "dict"; readonly pairs: readonly (readonly [Expression, Expression])[] })
  | (ExpressionNode & { readonly kind: "attribute"; readonly object: Expression; readonly name: string })
  | (ExpressionNode & { readonly kind: "item"; readonly object: Expression; readonly index: Expression })
  | (ExpressionNode & {
      readonly kind: "test";
      readonly input: Expression;
      readonly name: string;
      readonly args: Arguments;
    })
  | (ExpressionNode & { readonly kind: "unary"; readonly operator: "+" | "-" | "not"; readonly operand: Expression })
  | (ExpressionNode & {
      readonly kind: "binary";
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    })
  | (ExpressionNode & { readonly kind: "concat"; readonly parts: readonly Expression[] })
  | (ExpressionNode & {
      readonly kind: "compare";
      readonly first: Expression;
      readonly rest: readonly { readonly operator: string; readonly operand: Expression }[];
    })
  | (ExpressionNode & {
      readonly kind: "condition";
      readonly test: Expression;
      readonly value: Expression;
      readonly otherwise: Expression | null;
    });

export interface Parameter {
  readonly name: string;
  readonly fallback: Expression | null;
}

/** A macro, or the body of a call block. */
export interface Signature {
  readonly parameters: readonly Parameter[];
  readonly body: readonly Statement[];
}

export interface ForNode extends Node {
  readonly kind: "for";
  readonly target: Target;
  readonly iterable: Expression;
  readonly test: Expression | null;
  readonly recursive: boolean;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
}

export interface IfNode extends Node {
  readonly kind: "if";
  readonly test: Expression;
  readonly body: readonly Statement[];
  readonly elifs: readonly { readonly line: number; readonly test: Expression; readonly body: readonly Statement[] }[];
  readonly otherwise: readonly Statement[];
}

export interface MacroNode extends Node, Signature {
  readonly kind: "macro";
  readonly name: string;
}

export interface CallBlockNode extends Node, Signature {
  readonly kind: "call block";
  readonly call: CallNode;
}

export interface SetBlockNode extends Node {
  readonly kind: "set block";
  readonly target: Target;
  readonly filter: FilterNode | null;
  readonly body: readonly Statement[];
}

export interface FilterBlockNode extends Node {
  readonly kind: "filter block";
  readonly filter: FilterNode;
  readonly body: readonly Statement[];
}

export interface WithNode extends Node {
  readonly kind: "with";
  readonly targets: readonly { readonly target: Target; readonly value: Expression }[];
  readonly body: readonly Statement[];
}

export interface BlockNode extends Node {
  readonly kind: "block";
  readonly name: string;
  readonly scoped: boolean;
  readonly body: readonly Statement[];
}

export type Statement =
  | ForNode
  | IfNode
  | MacroNode
  | CallBlockNode
  | SetBlockNode
  | FilterBlockNode
  | WithNode
  | BlockNode
  | (Node & { readonly kind: "text"; readonly text: string })
  | (Node & { readonly kind: "output"; readonly value: Expression })
  | (Node & { readonly kind: "set"; readonly target: Target; readonly value: Expression })
  | (Node & { readonly kind: "generation"; readonly body: readonly Statement[] })
  | (Node & { readonly kind: "autoescape"; readonly body: readonly Statement[] })
  | (Node & { readonly kind: "break" | "continue" });
