/** Answers as models of each family write them, written for the tests of their parsers, with what is in them. */
import type { KnownTool } from "../../src/text/answer/events.ts";

export interface Recorded {
  readonly name: string;
  /** As much of a chat template as tells how its model writes. */
  readonly template: string;
  readonly tools: readonly KnownTool[];
  /** Whether the prompt ends within thinking. */
  readonly isThinking?: boolean;
  readonly answer: string;
  readonly text?: string;
  readonly reasoning?: string;
  /** Names with arguments: as text where it must be this one, else as values. */
  readonly calls?: readonly (readonly [name: string, args: unknown])[];
}

const tools: readonly KnownTool[] = [
  {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" }, units: { enum: ["c", "f"] } },
      required: ["city"],
    },
  },
  {
    name: "write_file",
    parameters: {
      type: "object",
      properties: {
        path: { type: "string" },
        content: { type: "string" },
        options: { type: "object" },
        tags: { type: "array", items: { type: "string" } },
        force: { type: "boolean" },
      },
    },
  },
  { name: "now" },
];

const of = (template: string, answers: readonly (Omit<Recorded, "template" | "tools"> & Partial<Recorded>)[]) =>
  answers.map((one): Recorded => ({ template, tools, ...one }));

const paris = ["get_weather", { city: "Paris" }] as const;

const hermes = of("tools <tool_call> </tool_call>", [
  { name: "no call", answer: "It rains <b>hard</b>.\n", text: "It rains <b>hard</b>.\n" },
  {
    name: "Hermes: one call",
    answer: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    calls: [["get_weather", '{"city": "Paris"}']],
  },
  {
    name: "Hermes: arguments before the name",
    answer: '<tool_call>\n{"arguments": {"city": "Paris"}, "name": "get_weather"}\n</tool_call>\n',
    calls: [paris],
  },
  {
    name: "Hermes: text and two calls",
    answer:
      'I ask twice.\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n<tool_call>\n{"name":"now","arguments":{}}\n</tool_call>',
    text: "I ask twice.",
    calls: [paris, ["now", {}]],
  },
  {
    name: "Hermes: text behind a call",
    answer: '<tool_call>{"name": "now"}</tool_call>\nLet me see.',
    text: "Let me see.",
    calls: [["now", {}]],
  },
  {
    name: "Hermes: marks and braces within strings",
    answer:
      '<tool_call>{"name":"write_file","arguments":{"path":"a}\\"]","content":"</tool_call> {\\n<tool_call>"}}</tool_call>',
    calls: [["write_file", { path: 'a}"]', content: "</tool_call> {\n<tool_call>" }]],
  },
  {
    name: "Hermes: a line break within a string",
    answer: '<tool_call>{"name":"write_file","arguments":{"content":"a\nb"}}</tool_call>',
    calls: [["write_file", { content: "a\nb" }]],
  },
  {
    name: "Hermes: arguments as the text of an object",
    answer: '<tool_call>{"name":"get_weather","arguments":"{\\"city\\":\\"Paris\\"}"}</tool_call>',
    calls: [paris],
  },
  {
    name: "Hermes: objects without an end mark",
    answer: '<tool_call>{"name":"now","arguments":{}}\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
    calls: [["now", {}], paris],
  },
  {
    name: "Hermes: a call cut off",
    answer: '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
    calls: [["get_weather", '{"city": "Par']],
  },
  {
    name: "Hermes: a call cut off before its arguments stays text",
    answer: 'So: <tool_call>\n{"name": "get_wea',
    text: 'So: <tool_call>\n{"name": "get_wea',
  },
  {
    name: "Hermes: what is no JSON stays text",
    answer: "A <tool_call>get_weather(Paris)</tool_call> B",
    text: "A <tool_call>get_weather(Paris)</tool_call> B",
  },
  {
    name: "Hermes: a name that is no text stays text",
    answer: '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    text: '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
  },
  {
    name: "Hermes: arguments that are no object stay text",
    answer: '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
    text: '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
  },
  {
    name: "Hermes: a call behind a broken one",
    answer: '<tool_call>oh<tool_call>{"name": "now", "arguments": {}}</tool_call>',
    text: "<tool_call>oh",
    calls: [["now", {}]],
  },
  {
    name: "Qwen2.5-Coder: a call without marks",
    answer: '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    calls: [paris],
  },
  {
    name: "Qwen2.5-Coder: a call in a block of code",
    answer: '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
    calls: [paris],
  },
  {
    name: "JSON of a thing that is no tool stays text",
    answer: '{"name": "Ada", "arguments": {"city": "Paris"}}',
    text: '{"name": "Ada", "arguments": {"city": "Paris"}}',
  },
  {
    name: "a block of code stays text",
    answer: "```json\n[1]\n```\n",
    text: "```json\n[1]\n```\n",
  },
  { name: "an unfinished mark at the end", answer: "1 <tool_cal", text: "1 <tool_cal" },
  { name: "white space alone", answer: " \n", text: " \n" },
]);

const thinking = of("tools <tool_call> <think> </think>", [
  {
    name: "thinking, then text",
    answer: "<think>\nHm.\nYes.\n</think>\n\nIt rains.",
    reasoning: "Hm.\nYes.",
    text: "It rains.",
  },
  {
    name: "thinking that the prompt has opened",
    isThinking: true,
    answer: "Hm.\n</think>\n\nIt rains.\n",
    reasoning: "Hm.",
    text: "It rains.\n",
  },
  { name: "thinking that never ends", isThinking: true, answer: "Hm. A </thin", reasoning: "Hm. A </thin" },
  {
    name: "thinking, then a call",
    isThinking: true,
    answer: 'I need it.</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    reasoning: "I need it.",
    calls: [["now", {}]],
  },
  {
    name: "a call within thinking ends it",
    isThinking: true,
    answer: 'I need it.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    reasoning: "I need it.",
    calls: [["now", {}]],
  },
  {
    name: "thinking about the form of calls stays thinking",
    isThinking: true,
    answer: 'The form is <tool_call>{"name": "f", "arguments": {}}</tool_call>, I think.</think>Yes.',
    reasoning: 'The form is <tool_call>{"name": "f", "arguments": {}}</tool_call>, I think.',
    text: "Yes.",
  },
  { name: "empty thinking", answer: "<think>\n\n</think>\n\nYes.", text: "Yes." },
  { name: "an end of thinking that began nowhere stays text", answer: "a </think> b", text: "a </think> b" },
  {
    name: "thinking without tools",
    tools: [],
    answer: "<think>Hm.</think><tool_call>{}</tool_call>",
    reasoning: "Hm.",
    text: "<tool_call>{}</tool_call>",
  },
]);

export const recorded: readonly Recorded[] = [...hermes, ...thinking];
