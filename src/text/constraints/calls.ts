/** Grammars of tool calls: a tool's name, and arguments that follow its schema. */
import type { CallStep } from "../answer/call-format.ts";
import type { KnownTool } from "../answer/events.ts";
import { automatonOf } from "./automaton.ts";
import { automatonState } from "./automaton-states.ts";
import { parseEbnf } from "./ebnf.ts";
import { checkGrammar, choice, followed, type Grammar, type Node, relaxed, rule, sequence, text } from "./grammar.ts";
import { inJson } from "./json-escapes.ts";
import { schemaGrammar } from "./json-schema.ts";
import { jsonRules } from "./json-text.ts";
import { supersetInJson } from "./schema-strings.ts";

/** A constraint on one part of a tool call. */
export interface CallConstraint {
  readonly kind: "calls";
  readonly step: CallStep;
  readonly tools: readonly KnownTool[];
}

/** The grammar of one part of a call. UnsupportedError for schemas that cannot be enforced. */
export function callGrammar({ step, tools }: CallConstraint): Grammar {
  const rules = new Map<string, Node>();
  const options = tools.map((tool, index) => {
    const name = text(JSON.stringify(tool.name).slice(1, -1));
    if (step.kind === "name") return name;
    const own = tool.text ? textArgument(tool.text) : schemaGrammar({ type: "object", ...tool.parameters });
    for (const [rule, node] of own) rules.set(`${index} ${rule}`, renamed(node, index));
    const args: Node = { kind: "rule", name: `${index} root` };
    if (step.kind !== "call") return args;
    return sequence(text('{"name": "'), name, text(`", "${step.key}": `), args, text("}"));
  });
  const grammar = new Map([["root", choice(options)], ...rules]);
  checkGrammar(grammar, "tools");
  return grammar;
}

/** Grammar of arguments that consist of one string in the tool's own grammar. */
function textArgument({ argument, ebnf }: NonNullable<KnownTool["text"]>): Grammar {
  const rules = [...parseEbnf(ebnf)].map(([name, node]) => [`text ${name}`, withinString(node)] as const);
  const begin = text(`{${JSON.stringify(argument)}: "`);
  const root: Node = sequence(begin, rule("text root"), text('"}'));
  const escapes = ["escaped", "escape"].map((name) => [name, jsonRules().get(name)!] as const);
  return new Map([["root", root], ...escapes, ...rules]);
}

/** A node as it is written within a JSON string. */
function withinString(node: Node): Node {
  switch (node.kind) {
    case "rule":
      return rule(`text ${node.name}`);
    case "text":
    case "class": {
      const state = automatonState(automatonOf(node), { min: 0, max: Number.POSITIVE_INFINITY });
      return state ? relaxed(followed(inJson(state)), supersetInJson(node, "text")) : node;
    }
    case "sequence":
      return { ...node, parts: node.parts.map(withinString) };
    case "choice":
      return { ...node, options: node.options.map(withinString) };
    case "repeat":
      return { ...node, part: withinString(node.part) };
    case "relaxed":
      return node;
  }
}

/** The node with its rule names prefixed by the index of their tool. */
function renamed(node: Node, index: number): Node {
  switch (node.kind) {
    case "rule":
      return { ...node, name: `${index} ${node.name}` };
    case "sequence":
      return { ...node, parts: node.parts.map((part) => renamed(part, index)) };
    case "choice":
      return { ...node, options: node.options.map((option) => renamed(option, index)) };
    case "relaxed":
      return {
        ...node,
        exact: node.exact.kind === "followed" ? node.exact : renamed(node.exact, index),
        superset: renamed(node.superset, index),
      };
    case "repeat":
      return { ...node, part: renamed(node.part, index) };
    default:
      return node;
  }
}
