/** Answers in which small models slip, and those whose values hold marks, with what is certainly meant. */
import { answersOf, paris, type Recorded } from "./recorded-answer.ts";

const HERMES = "tools <tool_call> </tool_call> <think> </think>";
const CODER = "tools <tool_call> <function= <parameter=";
const file = (content: string) => [["write_file", { path: "a", content }]] as const;

/** What stands between the marks of a call of get_weather for Paris, by what is wrong with it. */
const slips: Readonly<Record<string, string>> = {
  "a brace too many": '{"name": "get_weather", "arguments": {"city": "Paris"}}}',
  "a brace too few": '{"name": "get_weather", "arguments": {"city": "Paris"}',
  "two braces too few": '{"name": "get_weather", "arguments": {"city": "Paris"',
  "a quote left out at the end": '{"name": "get_weather", "arguments": {"city": "Paris}}',
  "quotes left out": '{"name": get_weather, "arguments": {"city": Paris}}',
  "quotes of keys left out": '{name: "get_weather", arguments: {city: "Paris"}}',
  "Python's quotes": "{'name': 'get_weather', 'arguments': {'city': 'Paris'}}",
  "three quotes": '{"name": "get_weather", "arguments": {"city": """Paris"""}}',
  "commas too many": '{"name": "get_weather", "arguments": {"city": "Paris",},}',
  "a comma left out": '{"name": "get_weather" "arguments": {"city": "Paris"}}',
  "double braces": '{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}',
  "double braces outside": '{{"name": "get_weather", "arguments": {"city": "Paris"}}}',
  "OpenAI's wrapper": '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}',
  "a wrapper": '{"tool_call": {"name": "get_weather", "arguments": {"city": "Paris"}}}',
  "a wrapper of a list": '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}',
  "a list that does not end": '[{"name": "get_weather", "arguments": {"city": "Paris"}}',
  "the name as the key": '{"get_weather": {"city": "Paris"}}',
  "the name in front": 'get_weather\n{"city": "Paris"}',
  "no object of arguments": '{"name": "get_weather", "city": "Paris"}',
  "a name with its group": '{"name": "functions.get_weather", "arguments": {"city": "Paris"}}',
  "a text of arguments in Python's quotes": `{"name": "get_weather", "arguments": "{'city': 'Paris'}"}`,
  "a block of code": '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
};

const hermes = answersOf(HERMES, [
  ...Object.entries(slips).map(([name, body]) => ({
    name: `Hermes: ${name}`,
    answer: `<tool_call>\n${body}\n</tool_call>`,
    calls: [paris],
  })),
  {
    name: "Hermes: Python's words and numbers of any length",
    answer:
      '<tool_call>{"name": "now", "arguments": {"a": True, "b": None, "id": 12345678901234567890, "x": 0x10, "y": 1_000}}</tool_call>',
    calls: [["now", '{"a": true, "b": null, "id": 12345678901234567890, "x": 16, "y": 1000}']],
  },
  {
    name: "Hermes: quotes and escapes in a text",
    answer: `<tool_call>{"name":"write_file","arguments":{"path":"a","content":"say "hi", \\d it\\'s"}}</tool_call>`,
    calls: file(`say "hi", \\d it's`),
  },
  {
    name: "Hermes: arguments that break are no JSON",
    answer: '<tool_call>{"name": "get_weather", "arguments": {]}</tool_call>Done.',
    text: "Done.",
    calls: [["get_weather", "{]}"]],
  },
  {
    name: "Hermes: a name with what is no parameter stays text",
    answer: '<tool_call>{"name": "get_weather", "town": "Paris"}</tool_call>',
    text: '<tool_call>{"name": "get_weather", "town": "Paris"}</tool_call>',
  },
  {
    name: "Hermes: the first mark for the last",
    answer: '<tool_call>{"name": "now", "arguments": {}}\n<tool_call>',
    calls: [["now", {}]],
  },
  {
    name: "Hermes: the end mark cut off",
    answer: '<tool_call>{"name": "now", "arguments": {}}\n</tool_c',
    calls: [["now", {}]],
  },
  {
    name: "Hermes: texts around calls stay apart",
    answer: 'A<tool_call>{"name": "now"}</tool_call>B\n<tool_call>{"name": "now"}</tool_call> C',
    text: "A\n\nB\n C",
    calls: [
      ["now", {}],
      ["now", {}],
    ],
  },
  {
    name: "an answer about the marks of thinking",
    answer: "Use the `<think>` tag to open and `</think>` to close.",
    text: "Use the `<think>` tag to open and `</think>` to close.",
  },
  {
    name: "thinking about the marks of thinking",
    isThinking: true,
    answer: 'It\'s "</think>", or `</think>`.</think>Use <think>.',
    reasoning: 'It\'s "</think>", or `</think>`.',
    text: "Use <think>.",
  },
  {
    name: "the end of thinking behind a call within it",
    isThinking: true,
    answer: 'I call.<tool_call>{"name": "now"}</tool_call>\n</think>\nYes.',
    reasoning: "I call.",
    text: "Yes.",
    calls: [["now", {}]],
  },
]);

const values: Readonly<Record<string, string>> = {
  "an end mark": 'say "</parameter>" twice',
  "the end of a function": "x </function> y",
  "the rest of a call": "<function=demo>\n</function>\n</tool_call>",
  "the end of a call": "</parameter>\n</function>\n</tool_call>",
  "a pattern": "p = r'<parameter=edits>\\n(.*?)\\n</parameter>'\nprint(p)",
  "a whole call": "<tool_call>\n<function=a>\n<parameter=path>\n1\n</parameter>\n</function>\n</tool_call>",
};

const coder = answersOf(CODER, [
  ...Object.entries(values).map(([name, value]) => ({
    name: `Qwen3-Coder: a value with ${name}`,
    answer: `<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n${value}\n</parameter>\n</function>\n</tool_call>`,
    calls: file(value),
  })),
  {
    name: "Qwen3-Coder: all ends left out, and text",
    answer: "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</tool_call>\nDone.",
    text: "Done.",
    calls: [paris],
  },
  {
    name: "Qwen3-Coder: one end left out",
    answer:
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
    calls: [["get_weather", { city: "Paris", days: 3 }]],
  },
  {
    name: "Qwen3-Coder: ends left out in the first of two calls",
    answer:
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    calls: [paris, paris],
  },
  {
    name: "Qwen3-Coder: text in place of parameters stays text",
    answer: "<tool_call>\n<function=now>\nls\n</function>\n</tool_call>",
    text: "<tool_call>\n<function=now>\nls\n</function>\n</tool_call>",
  },
  {
    name: "Qwen3-Coder: JSON in place of parameters",
    answer: '<tool_call>\n<function=get_weather>\n{"city": "Paris"}\n</function>\n</tool_call>',
    calls: [paris],
  },
  {
    name: "Qwen3-Coder: Python's values",
    answer:
      "<tool_call>\n<function=write_file>\n<parameter=options>\n{'a': True, 'b': (1, 2)}\n</parameter>\n<parameter=tags>\n['x']\n</parameter>\n</function>\n</tool_call>",
    calls: [["write_file", { options: { a: true, b: [1, 2] }, tags: ["x"] }]],
  },
]);

const glm = answersOf("tools <tool_call> <arg_key>", [
  {
    name: "GLM: ends within a value, and left out",
    answer:
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a </arg_value> b </tool_call> c</arg_value></tool_call><tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    calls: [
      ["get_weather", { city: "a </arg_value> b </tool_call> c" }],
      ["get_weather", { city: "Paris", days: 3 }],
    ],
  },
]);

const lfm = answersOf("tools <|tool_call_start|>", [
  {
    name: "LFM2: Python's literals",
    answer:
      "<|tool_call_start|>[now(a=r'a\\d', b='a' \"b\", c=0xFF, d=1_000, e=12345678901234567890, f=(1), g=-.5, h='\\x41\\u00e9', i='''x\"y''')]<|tool_call_end|>",
    calls: [
      [
        "now",
        '{"a": "a\\\\d", "b": "ab", "c": 255, "d": 1000, "e": 12345678901234567890, "f": 1, "g": -0.5, "h": "Aé", "i": "x\\"y"}',
      ],
    ],
  },
  ...Object.entries({
    "a quote within": "get_weather(city='Paris')",
    "quotes left out": "get_weather(city=Paris)",
    "a bracket left out": 'get_weather(city="Paris"',
    "a quote left out at the end": 'get_weather(city="Paris)',
  }).map(([name, call]) => ({
    name: `LFM2: ${name}`,
    answer: `<|tool_call_start|>[${call}]<|tool_call_end|>`,
    calls: [paris],
  })),
  {
    name: "LFM2: a name that could be a variable's stays text",
    answer: "<|tool_call_start|>[now(zone=local)]<|tool_call_end|>",
    text: "<|tool_call_start|>[now(zone=local)]<|tool_call_end|>",
  },
]);

const others = [
  ...answersOf("tools <|tool_call>", [
    {
      name: "Gemma 4: quotes within and left out",
      answer:
        '<|tool_call>call:write_file{path:a,content:<|"|>x<|"|>y<|"|>}<tool_call|><|tool_call>call:get_weather{city:<|"|>Paris<|"|><tool_call|>',
      calls: [...file('x<|"|>y'), paris],
    },
  ]),
  ...answersOf("tools <|channel|> <|message|>", [
    {
      name: "gpt-oss: no arguments",
      answer: "<|channel|>commentary to=functions.now <|constrain|>json<|message|><|call|>",
      calls: [["now", {}]],
    },
    {
      name: "gpt-oss: a brace too many",
      answer: '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Paris"}}<|call|>',
      calls: [paris],
    },
    {
      name: "gpt-oss: a mark in a text, and two texts",
      answer:
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>A <|end|> ends it.<|return|>",
      text: "I look.\n\nA <|end|> ends it.",
    },
  ]),
  ...answersOf("tools <|tool_calls_section_begin|>", [
    {
      name: "Kimi: no arguments",
      answer:
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>",
      calls: [["now", {}]],
    },
  ]),
  ...answersOf("tools [TOOL_CALLS] [ARGS]", [
    {
      name: "Mistral: no arguments, and a brace too many",
      answer: '[TOOL_CALLS]now[ARGS][TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}}',
      calls: [["now", {}], paris],
    },
  ]),
  ...answersOf('tools "parameters": dictionary <|python_tag|>', [
    {
      name: "Llama 3.1: a call behind the token as of its own tools",
      answer: '<|python_tag|>get_weather.call(city="Paris")',
      calls: [paris],
    },
    {
      name: "Llama 4: between its tokens",
      answer: '<|python_start|>[get_weather(city="Paris")]<|python_end|>',
      calls: [paris],
    },
  ]),
];

export const recordedSlips: readonly Recorded[] = [...hermes, ...coder, ...glm, ...lfm, ...others];
