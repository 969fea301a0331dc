/** Constraints on an answer, as callers give them. */

/**
 * What an answer is constrained to, token by token: any JSON, JSON of a schema, a text of a grammar (EBNF, whose start is the
 * rule `root` or else the first), a match of a regular expression (which covers the whole text), or one of several strings.
 */
export type Constraint =
  | { readonly kind: "json" }
  | { readonly kind: "jsonSchema"; readonly schema: object | boolean }
  | { readonly kind: "grammar"; readonly ebnf: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly options: readonly string[] };
