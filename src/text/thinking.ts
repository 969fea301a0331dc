/** How models write their thinking: between tags that their templates contain, turned on and off by template variables. */

/** Tags around a model's thinking. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
  /** Text that ends thinking from outside, when it takes too long. */
  readonly close: string;
}

const tags = (name: string): ThinkingTags => ({
  ...{ begin: `<${name}>`, end: `</${name}>`, close: `\n</${name}>\n\n` },
});
const pair = (begin: string, end: string): ThinkingTags => ({ begin, end, close: end });

const TAGS: readonly ThinkingTags[] = [
  tags("think"),
  tags("seed:think"),
  tags("thought"),
  pair("[THINK]", "[/THINK]"),
  pair("<|START_THINKING|>", "<|END_THINKING|>"),
  pair("<|channel>thought", "<channel|>"),
  pair("<|inner_prefix|>", "<|inner_suffix|>"),
];

/** The thinking tags that a template contains; null where there are none. */
export function thinkingTags(template: string): ThinkingTags | null {
  return TAGS.find(({ end }) => template.includes(end)) ?? null;
}

/** Whether a template's model writes in channels, as gpt-oss does. */
export function hasChannels(template: string): boolean {
  return template.includes("<|channel|>") && template.includes("<|message|>");
}

/** Headers of thinking and of the answer, for models that write in channels. */
export const CHANNEL_THINKING = "<|channel|>analysis<|message|>";
export const CHANNEL_ANSWER = "<|channel|>final<|message|>";

/** Text that ends thinking and begins the answer, for models that write in channels. */
export const CHANNEL_CLOSE = "<|end|><|start|>assistant<|channel|>final<|message|>";

/** Whether a template's model can think. */
export function canThink(template: string): boolean {
  return thinkingTags(template) !== null || hasChannels(template) || thinkingSwitches(template).length > 0;
}

const SWITCHES = ["enable_thinking", "thinking", "reasoning"];

/** Template variables that turn thinking on and off. */
export function thinkingSwitches(template: string): string[] {
  const names = templateVariables(template);
  return SWITCHES.filter((name) => names.has(name));
}

/** Names that a template uses in its code, outside of strings. */
export function templateVariables(template: string): ReadonlySet<string> {
  const code = [...template.matchAll(/\{[{%]([\s\S]*?)[%}]\}/g)].map(([, text]) => text!).join(" ; ");
  const bare = code.replace(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g, '""');
  return new Set([...bare.matchAll(/(?<![.\w])[A-Za-z_]\w*/g)].map(([name]) => name));
}
