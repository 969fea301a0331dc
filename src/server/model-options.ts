/** Options that requests give for any model, adapted to what the model's template has. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import { canThink, templateVariables } from "../text/thinking.ts";
import type { Warn } from "./warnings.ts";

/** Reasoning efforts, from the least on. */
export const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

/** Efforts of templates that read the variable but name no values. */
const USUAL = ["low", "medium", "high"];

/** Thinking options of a request. */
export interface Thinking {
  readonly effort?: string | null | undefined;
  readonly thinking?: ChatOptions["thinking"];
}

/**
 * Thinking options for a model's template: a model without thinking answers without it, and efforts become the nearest
 * known ones.
 */
export function thinkingOptions(
  { effort, thinking }: Thinking,
  template: ChatTemplate | null | undefined,
  warn: Warn,
): Pick<ChatOptions, "thinking" | "templateOptions"> {
  const source = template?.source ?? "";
  const wants = thinking === true || (typeof thinking === "object" && thinking.budget > 0);
  const isIgnored = wants && template != null && !canThink(source);
  if (isIgnored) warn("thinking is left out: the model does not think");
  const asked = thinking === undefined && effort === "none" ? false : thinking;
  const known = effort && effort !== "none" ? effortOf(effort, source) : null;
  return {
    ...(asked === undefined || isIgnored ? {} : { thinking: asked }),
    ...(known === null ? {} : { templateOptions: { reasoning_effort: known } }),
  };
}

/** The effort nearest to `effort` that the template names; of two equally near, the greater. */
function effortOf(effort: string, source: string): string {
  if (source === "" || !templateVariables(source).has("reasoning_effort")) return effort;
  const named = EFFORTS.filter((one) => source.includes(`'${one}'`) || source.includes(`"${one}"`));
  const known: readonly string[] = named.length > 1 ? named.filter((one) => one !== "none") : USUAL;
  const rank = (one: string) => (EFFORTS as readonly string[]).indexOf(one);
  const distance = (one: string) => Math.abs(rank(one) - rank(effort));
  return known.toSorted((a, b) => distance(a) - distance(b) || rank(b) - rank(a))[0] ?? effort;
}
