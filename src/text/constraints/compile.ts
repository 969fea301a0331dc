/** Constraints to grammars. */
import { shown } from "../../arguments.ts";
import { InvalidArgumentError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { parseEbnf } from "./ebnf.ts";
import { checkGrammar, choice, type Grammar, text } from "./grammar.ts";
import { schemaGrammar } from "./json-schema.ts";
import { parseRegex } from "./regex.ts";

const CHOICES_MAX = 10_000;

/** The grammar of a constraint, checked. Errors are those of what the constraint is made of. */
export function compileConstraint(constraint: Constraint): Grammar {
  const grammar = grammarOf(constraint);
  checkGrammar(grammar, constraint.kind === "jsonSchema" ? "schema" : constraint.kind);
  return grammar;
}

function grammarOf(constraint: Constraint): Grammar {
  switch (constraint?.kind) {
    case "json":
      return schemaGrammar(true);
    case "jsonSchema":
      return schemaGrammar(constraint.schema);
    case "grammar":
      return parseEbnf(constraint.ebnf);
    case "regex":
      return new Map([["root", parseRegex(constraint.pattern, "regex").node]]);
    case "choice":
      return new Map([["root", choice(checkOptions(constraint.options).map((option) => text(option)))]]);
    default:
      throw new InvalidArgumentError(
        `constraint: expected a kind of json, jsonSchema, grammar, regex or choice but found ${shown(constraint).slice(0, 80)}`,
      );
  }
}

function checkOptions(options: readonly string[]): readonly string[] {
  const isList = Array.isArray(options) && options.length > 0 && options.length <= CHOICES_MAX;
  if (!isList || !options.every((option) => typeof option === "string" && option !== ""))
    throw new InvalidArgumentError(`choice: expected a list of 1 to ${CHOICES_MAX} texts of at least one character`);
  return [...new Set(options)];
}
