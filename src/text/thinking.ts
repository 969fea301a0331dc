/** How models think before they answer: between tags that their templates speak of, switched by variables of these. */

/** Tags around a model's thinking. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
  /** What ends thinking that has taken too long. */
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

/** Tags around thinking that a template speaks of; null where there are none. */
export function thinkingTags(template: string): ThinkingTags | null {
  return TAGS.find(({ end }) => template.includes(end)) ?? null;
}

/** Whether the model of a template writes in channels, as gpt-oss does. */
export function hasChannels(template: string): boolean {
  return template.includes("<|channel|>") && template.includes("<|message|>");
}

/** What begins the thinking, and the text, of models that write in channels. */
export const CHANNEL_THINKING = "<|channel|>analysis<|message|>";
export const CHANNEL_ANSWER = "<|channel|>final<|message|>";

/** What ends the thinking of models that write in channels. */
export const CHANNEL_CLOSE = "<|end|><|start|>assistant<|channel|>final<|message|>";

/** Whether the model of a template thinks. */
export function canThink(template: string): boolean {
  return thinkingTags(template) !== null || hasChannels(template) || thinkingSwitches(template).length > 0;
}

const SWITCHES = ["enable_thinking", "thinking", "reasoning"];

/** Variables of a template that turn thinking on and off. */
export function thinkingSwitches(template: string): string[] {
  const names = templateVariables(template);
  return SWITCHES.filter((name) => names.has(name));
}

/** Names that a template uses in its code, outside of texts. */
export function templateVariables(template: string): ReadonlySet<string> {
  const code = [...template.matchAll(/\{[{%]([\s\S]*?)[%}]\}/g)].map(([, text]) => text!).join(" ; ");
  const bare = code.replace(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g, '""');
  return new Set([...bare.matchAll(/(?<![.\w])[A-Za-z_]\w*/g)].map(([name]) => name));
}
