/** Grammars of calls: a tool's name, and arguments that follow its schema. */
import type { CallStep } from "../answer/call-format.ts";
import type { KnownTool } from "../answer/events.ts";
import { checkGrammar, choice, type Grammar, type Node, sequence, text } from "./grammar.ts";
import { schemaGrammar } from "./json-schema.ts";

/** What a part of a call is constrained to. */
export interface CallConstraint {
  readonly kind: "calls";
  readonly step: CallStep;
  readonly tools: readonly KnownTool[];
}

/** The grammar of a part of a call. UnsupportedError for schemas that cannot be honoured. */
export function callGrammar({ step, tools }: CallConstraint): Grammar {
  const rules = new Map<string, Node>();
  const options = tools.map((tool, index) => {
    const name = text(JSON.stringify(tool.name).slice(1, -1));
    if (step.kind === "name") return name;
    const schema = schemaGrammar({ type: "object", ...tool.parameters });
    for (const [rule, node] of schema) rules.set(`${index} ${rule}`, renamed(node, index));
    const args: Node = { kind: "rule", name: `${index} root` };
    if (step.kind !== "call") return args;
    return sequence(text('{"name": "'), name, text(`", "${step.key}": `), args, text("}"));
  });
  const grammar = new Map([["root", choice(options)], ...rules]);
  checkGrammar(grammar, "tools");
  return grammar;
}

/** A node whose rules are those of one tool. */
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
        told: renamed(node.told, index),
      };
    case "repeat":
      return { ...node, part: renamed(node.part, index) };
    default:
      return node;
  }
}
