/** What requests ask of models in general, as far as a model has it. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import { canThink, templateVariables } from "../text/thinking.ts";
import type { Warn } from "./warnings.ts";

/** Efforts of thinking, from the least on. */
export const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

/** Those that templates know which name none. */
const USUAL = ["low", "medium", "high"];

/** Thinking as a request asks for it. */
export interface Thinking {
  readonly effort?: string | null | undefined;
  readonly thinking?: ChatOptions["thinking"];
}

/** Options of thinking for the model of a template: a model that does not think answers without, and efforts are those that it knows. */
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

/** The effort that a template knows which is nearest to one, or the greater of two. */
function effortOf(effort: string, source: string): string {
  if (source === "" || !templateVariables(source).has("reasoning_effort")) return effort;
  const named = EFFORTS.filter((one) => source.includes(`'${one}'`) || source.includes(`"${one}"`));
  const known: readonly string[] = named.length > 1 ? named.filter((one) => one !== "none") : USUAL;
  const rank = (one: string) => (EFFORTS as readonly string[]).indexOf(one);
  const distance = (one: string) => Math.abs(rank(one) - rank(effort));
  return known.toSorted((a, b) => distance(a) - distance(b) || rank(b) - rank(a))[0] ?? effort;
}
