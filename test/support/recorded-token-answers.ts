/** Recorded answers of families whose calls stand between tokens of their own, and of those that write in channels. */
import { answersOf, paris, type Recorded } from "./recorded-answer.ts";

const gemma = answersOf("tools <start_function_call>", [
  {
    name: "FunctionGemma: a call",
    answer: "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call>",
    calls: [["get_weather", { city: "Paris", days: 2 }]],
  },
  {
    name: "FunctionGemma: values of all kinds, and two calls",
    answer:
      'Yes.<start_function_call>call:write_file{content:<escape>a "b"\n{c}<escape>,force:true,options:{mode:-1.5e2,deep:{x:null}},tags:[<escape>x<escape>,y]}<end_function_call><start_function_call>call:now{}<end_function_call>',
    text: "Yes.",
    calls: [
      [
        "write_file",
        { content: 'a "b"\n{c}', force: true, options: { mode: -150, deep: { x: null } }, tags: ["x", "y"] },
      ],
      ["now", {}],
    ],
  },
  {
    name: "FunctionGemma: a call cut off",
    answer: "<start_function_call>call:get_weather{city:<escape>Par",
    calls: [["get_weather", '{"city": "Par']],
  },
  {
    name: "FunctionGemma: no call stays text",
    answer: "<start_function_call>fn:x{}<end_function_call>",
    text: "<start_function_call>fn:x{}<end_function_call>",
  },
]);

const gemma4 = answersOf("tools <|tool_call> <|channel> <channel|>", [
  {
    name: "Gemma 4: thinking and a call",
    answer: '<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    reasoning: "Hm.",
    calls: [paris],
  },
]);

const lfm = answersOf("tools List of tools: <|tool_call_start|>", [
  {
    name: "LFM2: two calls",
    answer:
      '<|tool_call_start|>[get_weather(city="Paris"), write_file(path="a", content=\'it\\\'s\\n\', options={"a": [1, None, True], \'b\': (2,)}, tags=[], force=False)]<|tool_call_end|>I did.',
    text: "I did.",
    calls: [
      paris,
      ["write_file", { path: "a", content: "it's\n", options: { a: [1, null, true], b: [2] }, tags: [], force: false }],
    ],
  },
  {
    name: "LFM2: by position",
    answer: '<|tool_call_start|>[get_weather("Paris", 2)]<|tool_call_end|>',
    calls: [["get_weather", { city: "Paris", days: 2 }]],
  },
  {
    name: "LFM2: a call with an argument that is no value stays text",
    answer: "<|tool_call_start|>[get_weather(city=home())]<|tool_call_end|>",
    text: "<|tool_call_start|>[get_weather(city=home())]<|tool_call_end|>",
  },
  {
    name: "LFM2: no call stays text",
    answer: "<|tool_call_start|>[]<|tool_call_end|>",
    text: "<|tool_call_start|>[]<|tool_call_end|>",
  },
]);

const olmo = answersOf("tools <function_calls>", [
  {
    name: "OLMo 3: calls in lines",
    answer: '<function_calls>\nget_weather(city="Paris")\nnow()\n</function_calls>',
    calls: [paris, ["now", {}]],
  },
]);

const deepseek = answersOf("tools <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> <think> </think>", [
  {
    name: "DeepSeek R1: two calls in blocks of code",
    answer:
      '<think>\nHm.\n</think>\n\nI look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    reasoning: "Hm.",
    text: "I look.",
    calls: [paris, ["now", {}]],
  },
  {
    name: "DeepSeek V3.1: a call",
    answer:
      '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    calls: [paris],
  },
  {
    name: "DeepSeek: no call stays text",
    answer: "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>",
    text: "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>",
  },
]);

const kimi = answersOf("tools <|tool_calls_section_begin|>", [
  {
    name: "Kimi: two calls",
    answer:
      'I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>',
    text: "I look.",
    calls: [paris, ["now", {}]],
  },
]);

const harmony = answersOf("<|start|> <|channel|> <|message|>", [
  {
    name: "gpt-oss: thinking and text",
    answer: "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
    reasoning: "Hm.",
    text: "Yes.",
  },
  {
    name: "gpt-oss: thinking, a preamble and a call",
    answer:
      '<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    reasoning: "I need it.",
    text: "I look.",
    calls: [paris],
  },
  {
    name: "gpt-oss: the recipient before the channel",
    answer: '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
    calls: [paris],
  },
  { name: "gpt-oss: thinking cut off", answer: "<|channel|>analysis<|message|>Hm", reasoning: "Hm" },
  { name: "gpt-oss: no head is text", answer: "Yes, <|channel|> it is", text: "Yes, <|channel|> it is" },
  {
    name: "gpt-oss: a call that is no JSON is text",
    answer: "<|channel|>commentary to=functions.now<|message|>now<|call|>",
    text: "now",
  },
]);

export const recordedByToken: readonly Recorded[] = [...[gemma, gemma4, lfm, olmo, deepseek, kimi, harmony]].flat();
