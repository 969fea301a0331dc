/** Answers as models of each family write them, written for the tests of their parsers, with what is in them. */
import { answersOf, paris, type Recorded } from "./recorded-answer.ts";
import { recordedSlips } from "./recorded-slips.ts";
import { recordedByToken } from "./recorded-token-answers.ts";

const hermes = answersOf("tools <tool_call> </tool_call>", [
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

const thinking = answersOf("tools <tool_call> <think> </think>", [
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

const xml = answersOf("tools <tool_call> <function= <parameter= </think> <think>", [
  {
    name: "Qwen3-Coder: a call with values of many types",
    answer:
      'I write.\n<tool_call>\n<function=write_file>\n<parameter=path>\nsrc/a.ts\n</parameter>\n<parameter=content>\nif (a < b) {\n  say("hi");\n}\n\n</parameter>\n<parameter=options>\n{"mode": 420}\n</parameter>\n<parameter=tags>\n["x", "y"]\n</parameter>\n<parameter=force>\nTrue\n</parameter>\n</function>\n</tool_call>',
    text: "I write.",
    calls: [
      [
        "write_file",
        {
          path: "src/a.ts",
          content: 'if (a < b) {\n  say("hi");\n}\n',
          options: { mode: 420 },
          tags: ["x", "y"],
          force: true,
        },
      ],
    ],
  },
  {
    name: "Qwen3-Coder: without the outer tag, and two calls",
    answer:
      "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n<function=now>\n</function>\n</tool_call>",
    calls: [
      ["get_weather", { city: "Paris", days: 3 }],
      ["now", {}],
    ],
  },
  {
    name: "Qwen3-Coder: an end tag left out",
    answer: "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n<parameter=days>\n3\n</function>\n</tool_call>",
    calls: [["get_weather", { city: "12", days: 3 }]],
  },
  {
    name: "Qwen3-Coder: a parameter that the schema does not have",
    answer:
      "<tool_call><function=now><parameter=zone>UTC</parameter><parameter=at>5</parameter></function></tool_call>",
    calls: [["now", { zone: "UTC", at: 5 }]],
  },
  {
    name: "Qwen3-Coder: a value that its type does not allow is text",
    answer: "<tool_call><function=get_weather><parameter=days>\nsome\n</parameter></function></tool_call>",
    calls: [["get_weather", { days: "some" }]],
  },
  {
    name: "Qwen3-Coder: a call cut off",
    answer: "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
    calls: [["get_weather", '{"city": "Par']],
  },
  {
    name: "Qwen3-Coder: what is no function stays text",
    answer: "<tool_call>\n<fun=1></tool_call> and a <function=\nx",
    text: "<tool_call>\n<fun=1></tool_call> and a <function=\nx",
  },
  {
    name: "Qwen3.5: thinking, then a call",
    isThinking: true,
    answer:
      "Look.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    reasoning: "Look.",
    calls: [paris],
  },
]);

const glm = answersOf("tools <tool_call> <arg_key> <think> </think>", [
  {
    name: "GLM: two calls",
    answer:
      "<think>Hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
    reasoning: "Hm",
    calls: [
      ["get_weather", { city: "Paris", days: 2 }],
      ["now", {}],
    ],
  },
  {
    name: "GLM: in one line",
    answer: "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Pa</arg></arg_value></tool_call>",
    calls: [["get_weather", { city: "Pa</arg>" }]],
  },
  { name: "GLM: no name stays text", answer: "<tool_call>a b c</tool_call>", text: "<tool_call>a b c</tool_call>" },
  {
    name: "GLM: a key without a value stays text",
    answer: "<tool_call>now<arg_key>a</arg_key>b",
    text: "<tool_call>now<arg_key>a</arg_key>b",
  },
]);

const llama = answersOf('tools "parameters": dictionary <|python_tag|>', [
  { name: "Llama: bare JSON", answer: '{"name": "get_weather", "parameters": {"city": "Paris"}}', calls: [paris] },
  {
    name: "Llama: bare JSON with a type, behind a line break",
    answer: '\n{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
    calls: [paris],
  },
  {
    name: "Llama: several, behind the token",
    answer: '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "now", "parameters": {}}',
    calls: [paris, ["now", {}]],
  },
  {
    name: "Llama: text and a tag with a name",
    answer: 'So:\n<function=get_weather>{"city": "Paris"}</function>',
    text: "So:",
    calls: [paris],
  },
  {
    name: "Llama: a list as Python writes it",
    answer: "[get_weather(city='Paris', days=2), now()]",
    calls: [
      ["get_weather", { city: "Paris", days: 2 }],
      ["now", {}],
    ],
  },
  { name: "Llama: code behind the token stays text", answer: "<|python_tag|>print(1)", text: "<|python_tag|>print(1)" },
  { name: "Llama: a list stays text", answer: "[1, 2] and [f(x)]", text: "[1, 2] and [f(x)]" },
  { name: "Llama: JSON of no tool stays text", answer: '{"name": "x"', text: '{"name": "x"' },
]);

const mistral = answersOf("tools [TOOL_CALLS] [ARGS] [THINK] [/THINK]", [
  {
    name: "Mistral: a list",
    answer: '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]',
    calls: [paris, ["now", {}]],
  },
  {
    name: "Mistral: names with arguments",
    answer: 'Now.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{}',
    text: "Now.",
    calls: [paris, ["now", {}]],
  },
  {
    name: "Mistral: with an id",
    answer: '[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Paris"}',
    calls: [paris],
  },
  { name: "Mistral: a name and JSON", answer: '[TOOL_CALLS]get_weather{"city": "Paris"}', calls: [paris] },
  { name: "Mistral: thinking", answer: "[THINK]Hm.[/THINK]Yes.", reasoning: "Hm.", text: "Yes." },
  { name: "Mistral: no name stays text", answer: "[TOOL_CALLS] and so on", text: "[TOOL_CALLS] and so on" },
]);

const granite = answersOf("tools <|tool_call|> <tool_call>", [
  {
    name: "Granite: a list",
    answer:
      '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]</tool_call>',
    calls: [paris, ["now", {}]],
  },
  {
    name: "Granite: a list behind the token",
    answer: '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    calls: [paris],
  },
  {
    name: "Granite: a list that breaks goes on as text",
    answer: '<|tool_call|>[{"name": "now", "arguments": {}}, {"nam]',
    text: '{"nam]',
    calls: [["now", {}]],
  },
]);

const command = answersOf("tools <|START_ACTION|> <|END_THINKING|>", [
  {
    name: "Command: a plan and actions",
    answer:
      '<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}\n]<|END_ACTION|>',
    reasoning: "I look.",
    calls: [paris],
  },
]);

export const recorded: readonly Recorded[] = [
  ...[hermes, thinking, xml, glm, llama, mistral, granite, command, recordedByToken, recordedSlips],
].flat();
