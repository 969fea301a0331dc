/** Compiles constraints to grammars. */
import { shown } from "../../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { AutomatonSizeError, automatonOf } from "./automaton.ts";
import { automatonState } from "./automaton-states.ts";
import { parseEbnf } from "./ebnf.ts";
import { checkGrammar, choice, followed, type Grammar, type Node, relaxed, text } from "./grammar.ts";
import { schemaGrammar } from "./json-schema.ts";
import { parseRegex } from "./regex.ts";

const CHOICES_MAX = 10_000;

/** The checked grammar of a constraint. Throws what the parser of its kind throws: of schemas, EBNF or regular expressions. */
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
      return new Map([["root", regexNode(constraint.pattern)]]);
    case "choice":
      return new Map([["root", choice(checkOptions(constraint.options).map((option) => text(option)))]]);
    default:
      throw new InvalidArgumentError(
        `constraint: expected a kind of json, jsonSchema, grammar, regex or choice but found ${shown(constraint)}`,
      );
  }
}

function regexNode(pattern: string): Node {
  const { node, tree, isAnchored } = parseRegex(pattern, "regex", { isWhole: true });
  if (!isAnchored) return node;
  try {
    const state = automatonState(automatonOf(tree));
    if (state) return relaxed(followed(state), node);
  } catch (cause) {
    if (!(cause instanceof AutomatonSizeError)) throw cause;
    throw new UnsupportedError("regex: anchors among so many cases cannot be enforced token by token", { cause });
  }
  throw new InvalidArgumentError("regex: expected an expression that a text matches");
}

function checkOptions(options: readonly string[]): readonly string[] {
  const isList = Array.isArray(options) && options.length > 0 && options.length <= CHOICES_MAX;
  if (!isList || !options.every((option) => typeof option === "string" && option !== ""))
    throw new InvalidArgumentError(`choice: expected a list of 1 to ${CHOICES_MAX} texts of at least one character`);
  return [...new Set(options)];
}
