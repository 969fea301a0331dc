/** What an answer may be made of, as callers say it. */

/**
 * What an answer is constrained to, token by token: any JSON, JSON of a schema, a text of a grammar (EBNF whose first rule, or the
 * one named `root`, is the whole), of a regular expression (which covers the whole text), or one of some texts.
 */
export type Constraint =
  | { readonly kind: "json" }
  | { readonly kind: "jsonSchema"; readonly schema: object | boolean }
  | { readonly kind: "grammar"; readonly ebnf: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly options: readonly string[] };
