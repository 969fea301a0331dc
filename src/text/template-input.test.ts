/** Messages, tools and thinking in the form that templates expect; real templates where they are at hand. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Message, Tool } from "./chat-messages.ts";
import { ChatTemplate } from "./chat-template.ts";
import { type ChatPromptOptions, templateInput } from "./template-input.ts";
import { canThink, thinkingSwitches, thinkingTags } from "./thinking.ts";

const weather: Tool = {
  name: "get_weather",
  description: "The weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const call = { id: "call_1", name: "get_weather", arguments: '{"city": "Paris"}' };
const talk: Message[] = [
  { role: "system", content: "Be brief." },
  {
    role: "user",
    content: [
      { type: "text", text: "Weather " },
      { type: "text", text: "in Paris?" },
    ],
  },
  { role: "assistant", content: null, reasoning: "I look.", toolCalls: [call] },
  { role: "tool", content: "rain", toolCallId: "call_1" },
  { role: "assistant", content: "It rains." },
  { role: "user", content: "Thanks" },
];

/** Lists in each other, more than functions that call themselves can read. */
const deep = Array.from({ length: 20_000 }).reduce<unknown>((inner) => [inner], null);

const input = (source: string, messages: readonly Message[] = talk, options: ChatPromptOptions = {}) =>
  templateInput(new ChatTemplate(source), messages, options);

describe("values of too many levels", () => {
  it("are refused by their names", () => {
    const options: ChatPromptOptions[] = [
      { templateOptions: { documents: deep } },
      { tools: [{ ...weather, parameters: { enum: deep } }] },
    ];
    const names = ["templateOptions", "tools[0].parameters"];
    for (const [i, given] of options.entries())
      expect(() => input("{{ tools }}", talk, given)).toThrow(
        new InvalidArgumentError(`${names[i]}: expected at most 256 levels of lists and objects but found more`),
      );
  });
});

describe("messages", () => {
  it("are those of transformers, with arguments as values and the name of a result's tool", () => {
    const { messages, options } = input("{{ tools }}{{ m.tool_calls }}{{ m.reasoning_content }}", talk, {
      tools: [weather],
    });
    expect(messages[1]).toEqual({ role: "user", content: "Weather in Paris?" });
    expect(messages[2]).toEqual({
      role: "assistant",
      content: "",
      reasoning_content: "I look.",
      tool_calls: [
        { id: "call_1", type: "function", function: { name: "get_weather", arguments: new Map([["city", "Paris"]]) } },
      ],
    });
    expect(messages[3]).toEqual({ role: "tool", content: "rain", tool_call_id: "call_1", name: "get_weather" });
    expect(options.tools).toEqual([{ type: "function", function: weather }]);
  });

  it("have thinking where the template looks for it, and none where it looks for none", () => {
    const third = (source: string) => input(source).messages[2];
    expect(third("{{ m.tool_calls }}{{ m['thinking'] }}")).toHaveProperty("thinking", "I look.");
    expect(third("{{ m.tool_calls }}{{ m.reasoning }}")).toHaveProperty("reasoning", "I look.");
    expect(Object.keys(third("{{ m.tool_calls }}")!)).toEqual(["role", "content", "tool_calls"]);
  });

  it("have arguments as text where the template joins them, and as the model wrote them where that is no JSON", () => {
    const argumentsOf = (source: string, text = call.arguments) => {
      const messages: Message[] = [{ role: "assistant", content: "", toolCalls: [{ ...call, arguments: text }] }];
      const [message] = input(source, messages).messages;
      return (message as { tool_calls?: { function: { arguments: unknown } }[] }).tool_calls![0]!.function.arguments;
    };
    expect(argumentsOf("{{ '\\n' + tool_calls['function']['arguments'] + '\\n' }}")).toBe(call.arguments);
    expect(argumentsOf("{{ tool_calls }}", "{")).toBe("{");
    expect(argumentsOf("{{ tool_calls }}", "")).toEqual(new Map());
  });

  it("have ids of nine digits for Mistral's templates", () => {
    const { messages } = input("{{ tool_calls }}{{ id|length != 9 }}");
    expect(messages[2]).toMatchObject({ tool_calls: [{ id: "000000001" }] });
    expect(messages[3]).toMatchObject({ tool_call_id: "000000001" });
  });

  it("have calls as text for templates that know none", () => {
    expect(input("{{ 'List of tools: ' }}{{ tools }}").messages[2]!.content).toBe(
      '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    );
    expect(input("{{ tools }}").messages[2]!.content).toBe(
      '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    );
    const twice: Message[] = [{ role: "assistant", content: "", toolCalls: [call, { ...call, arguments: "" }] }];
    expect(input("{{ tools }}<tool_call>", twice).messages[0]!.content).toBe(
      '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n' +
        '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>',
    );
  });

  // As json.loads and json.dumps of Python 3.11 have them.
  it("have arguments with the numbers and the order of the text", () => {
    const text = '{"id": 12345678901234567890, "b": [1.0, -0.0, 1e3, -7], "2": "s\\"1", "1": {"é": null, "n": true}}';
    const rendered = (source: string) => {
      const template = new ChatTemplate(source);
      const messages: Message[] = [{ role: "assistant", content: "", toolCalls: [{ ...call, arguments: text }] }];
      return template.render(templateInput(template, messages, {}).messages);
    };
    const json =
      '{"id": 12345678901234567890, "b": [1.0, -0.0, 1000.0, -7], "2": "s\\"1", "1": {"é": null, "n": true}}';
    expect(rendered("{{ messages[0].tool_calls[0].function.arguments | tojson }}")).toBe(json);
    expect(rendered("{# List of tools: #}{{ messages[0].content }}")).toBe(
      '<|tool_call_start|>[get_weather(id=12345678901234567890, b=[1.0, -0.0, 1000.0, -7], 2="s\\"1", ' +
        '1={"é": None, "n": True})]<|tool_call_end|>',
    );
  });

  it("have what gpt-oss thought and said before a call as one text", () => {
    const messages: Message[] = [
      { role: "assistant", content: "I look.", reasoning: "It asks.", toolCalls: [call] },
      { role: "assistant", content: "Done.", reasoning: "So." },
    ];
    const [first, last] = input("<|channel|><|message|>{{ m.tool_calls }}{{ m.thinking }}", messages).messages;
    expect(first).toMatchObject({ content: "", thinking: "It asks.\n\nI look." });
    expect(last).toMatchObject({ content: "Done.", thinking: "So." });
  });

  it.each<[unknown, string]>([
    ["Hello", 'messages: expected a list of messages but found "Hello"'],
    [[null], "messages[0]: expected a message but found null"],
    [[{ role: "robot", content: "" }], 'messages[0].role: expected system, user, assistant or tool but found "robot"'],
    [[{ role: "user", content: null }], "messages[0].content: expected a text or text parts but found null"],
    [
      [{ role: "user", content: [{ type: "image" }] }],
      "messages[0].content: expected a text or text parts but found a list of 1",
    ],
    [
      [{ role: "assistant", content: "", toolCalls: {} }],
      "messages[0].toolCalls: expected a list of calls but found an object with ",
    ],
    [
      [{ role: "assistant", content: "", toolCalls: [{ id: "a", name: 1 }] }],
      "messages[0].toolCalls[0].name: expected a text but found 1",
    ],
    [[{ role: "tool", content: "" }], "messages[0].toolCallId: expected the id of a call but found undefined"],
  ])("that are none are refused: %j", (messages, message) => {
    expect(() => input("", messages as Message[])).toThrow(new InvalidArgumentError(message));
  });
});

describe("tools", () => {
  it.each<[unknown, string]>([
    [{}, "tools: expected a list of tools but found an object with "],
    [[{ name: "a b" }], 'tools[0].name: expected 1 to 128 letters, digits, _, - and . but found "a b"'],
    [[weather, weather], 'tools[1].name: expected a name that no other tool has but found "get_weather"'],
    [[{ name: "f", parameters: [] }], "tools[0].parameters: expected a JSON schema but found a list of 0"],
  ])("that are none are refused: %j", (tools, message) => {
    expect(() => input("{{ tools }}", [], { tools: tools as Tool[] })).toThrow(new InvalidArgumentError(message));
  });

  it("are the functions alone where the template reads xml_tools, as SmolLM3's does", () => {
    const source = "{{ xml_tools }}{{ python_tools }}";
    expect(input(source, [], { tools: [weather] }).options).toEqual({ tools: null, xml_tools: [weather] });
    expect(input(source, []).options).toEqual({ tools: null });
  });

  it("are refused where the template has none", () => {
    expect(() => input("{{ messages }} tools", [], { tools: [weather] })).toThrow(UnsupportedError);
  });

  it("leave the template's own variables alone", () => {
    expect(input("{{ mode }}", [], { templateOptions: { mode: 1 } }).options).toMatchObject({ mode: 1, tools: null });
    expect(() => input("", [], { templateOptions: { messages: [] } })).toThrow("templateOptions: ");
  });
});

describe("thinking", () => {
  it("is switched by the variable that the template's code has", () => {
    const of = (source: string, thinking: boolean) => input(source, [], { thinking }).options;
    expect(of("{{ enable_thinking }}", true)).toMatchObject({ enable_thinking: true });
    expect(of("{{ not thinking }}", false)).toMatchObject({ thinking: false });
    expect(of("thinking {{ m.thinking }}{{ 'enable_thinking' }}", true)).toEqual({ tools: null });
    expect(of("<|channel|><|message|>{{ reasoning_effort }}", false)).toMatchObject({ reasoning_effort: "low" });
  });
});

const shared = new URL("../../../shared/cases/chat-templates/templates/", import.meta.url);
const names = existsSync(shared) ? readdirSync(shared) : [];
describe.skipIf(names.length === 0)("templates of published models (needs ../shared)", () => {
  const read = (name: string) => readFileSync(new URL(name, shared), "utf8");
  const withCalls = names.filter((name) => /tool_calls/.test(read(name)) && /\btools\b/.test(read(name)));

  // They fail in transformers as they do here, or read tools of another form.
  const odd = [
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja",
    "Kimi-K2-Instruct.jinja",
    "Kimi-K2-Thinking.jinja",
    "MiroThinker.jinja",
    "Reka-Edge.jinja",
    "llama-cpp-deepseek-r1.jinja",
  ];
  it.each(withCalls.filter((name) => !odd.includes(name)))(
    "%s shows tools, the call, its arguments and result",
    (name) => {
      const template = new ChatTemplate(read(name));
      const { messages, options } = templateInput(template, talk, { tools: [weather] });
      const text = template.render(messages, {
        ...options,
        addGenerationPrompt: true,
        bosToken: "<s>",
        eosToken: "</s>",
      });
      expect(text).toContain("get_weather");
      expect(text).toContain("Paris");
      expect(text).toContain("rain");
      expect(text).not.toContain('\\"city\\"');
    },
  );

  it("think between the tags and by the variables that are known", () => {
    const facts = Object.fromEntries(
      names.map((name) => [name, [thinkingTags(read(name))?.begin ?? null, ...thinkingSwitches(read(name))]]),
    );
    expect(facts).toMatchObject({
      "Qwen-Qwen3-0.6B.jinja": ["<think>", "enable_thinking"],
      "deepseek-ai-DeepSeek-V3.1.jinja": ["<think>", "enable_thinking", "thinking"],
      "ByteDance-Seed-OSS.jinja": ["<seed:think>"],
      "mistralai-Ministral-3-14B-Reasoning-2512.jinja": ["[THINK]"],
      "google-gemma-4-31B-it.jinja": ["<|channel>thought", "enable_thinking"],
      "Apertus-8B-Instruct.jinja": ["<|inner_prefix|>", "enable_thinking"],
    });
    expect(names.filter((name) => canThink(read(name))).length).toBeGreaterThan(20);
  });
});
