/** Orders of messages as agents send them, on templates that take them and on those that do not. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Message } from "./chat-messages.ts";
import { ChatTemplate } from "./chat-template.ts";
import { takesTools, templateInput } from "./template-input.ts";

const user = (content: string): Message => ({ role: "user", content });
const system = (content: string): Message => ({ role: "system", content });
const answer = (content: string): Message => ({ role: "assistant", content });
const called: Message = {
  role: "assistant",
  content: null,
  toolCalls: [{ id: "calla1234", name: "read", arguments: "{}" }],
};
const result = (content: string): Message => ({ role: "tool", content, toolCallId: "calla1234" });
const reminder = (text: string) => `<system-reminder>\n${text}\n</system-reminder>`;

/** A template that refuses roles that do not alternate behind one system message. */
const STRICT = `{%- if messages[0].role == 'system' %}[{{ messages[0].content }}]{% set messages = messages[1:] %}{% endif %}
{%- set ns = namespace(last='') %}{%- for m in messages %}
{%- if m.role == 'system' or m.role == ns.last or (m.role == 'user' and ns.last == 'tool') %}{{ raise_exception('order') }}{% endif %}
{%- set ns.last = m.role %}{{ m.role }}:{{ m.content }}{{ m.tool_calls or '' }};{% endfor %}`;
const TOLERANT = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls or '' }};{% endfor %}";

const shaped = (source: string, messages: readonly Message[]) =>
  templateInput(new ChatTemplate(source), messages, {}).messages.map(({ role, content }) => [role, content]);

const talk: Message[] = [
  system("A"),
  system("B"),
  user("1"),
  user("2"),
  called,
  result("R"),
  system("C"),
  answer("X"),
  system("D"),
  user("3"),
  system("E"),
];

describe("messages in an order that a template refuses", () => {
  it("are as they are where it takes them", () => {
    expect(shaped(TOLERANT, talk).map(([, content]) => content)).toEqual(
      talk.map(({ content }) => (content ?? "") as string),
    );
  });

  it("are within the turns beside them where it does not", () => {
    expect(shaped(STRICT, talk)).toEqual([
      ["system", "A\n\nB"],
      ["user", "1\n\n2"],
      ["assistant", ""],
      ["tool", `R\n\n${reminder("C")}`],
      ["assistant", "X"],
      ["user", `${reminder("D")}\n\n3\n\n${reminder("E")}`],
    ]);
  });

  it("are those of the user where it takes no system, or none alone", () => {
    const source = `{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}${STRICT}`;
    expect(shaped(source, [system("A"), user("1")])).toEqual([["user", "A\n\n1"]]);
    const asked = `{% if messages | selectattr('role', 'eq', 'user') | list | length == 0 %}{{ raise_exception('no user') }}{% endif %}${TOLERANT}`;
    expect(shaped(asked, [system("A"), system("B")])).toEqual([["user", "A\n\nB"]]);
  });

  it("are not left out by one that is silent about them", () => {
    const silent = TOLERANT.replace(
      "{{ m.role }}:",
      "{% if m.role == 'system' and not loop.first %}{% continue %}{% endif %}{{ m.role }}:",
    );
    expect(shaped(silent, [system("A"), user("1"), system("B")])).toEqual([
      ["system", "A"],
      ["user", `1\n\n${reminder("B")}`],
    ]);
  });

  it("begin as they began when the conversation was shorter", () => {
    const whole = shaped(STRICT, talk);
    // Up to what an answer follows.
    for (const [length, turns] of [
      [4, 2],
      [7, 4],
    ] as const)
      expect(shaped(STRICT, talk.slice(0, length))).toEqual(whole.slice(0, turns));
  });
});

describe("calls that a template refuses or leaves out", () => {
  const call = (id: string, args = "{}") => ({ id, name: `read_${id}`, arguments: args });
  const calls = (...all: ReturnType<typeof call>[]): Message => ({ role: "assistant", content: null, toolCalls: all });
  const given = (toolCallId: string, content: string): Message => ({ role: "tool", content, toolCallId });

  /** As gpt-oss: the first call of an answer alone, and results of it. */
  const ONE = `{%- set ns = namespace(call=none) %}{%- for m in messages %}
{%- if m.role == 'tool' and ns.call is none %}{{ raise_exception('no call') }}{% endif %}
{%- if m.tool_calls %}{% set ns.call = m.tool_calls[0].function %}{{ ns.call.name }}{% for k, v in ns.call.arguments.items() %} {{ k }}={{ v }}{% endfor %};
{%- else %}{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}`;
  const rendered = (source: string, messages: readonly Message[]) => {
    const template = new ChatTemplate(source);
    return template.render(templateInput(template, messages, {}).messages, {});
  };

  it("are followed by their own results", () => {
    const talk = [user("1"), calls(call("a"), call("b")), given("b", "B"), system("S"), given("a", "A"), user("2")];
    expect(rendered(ONE, talk)).toBe("user:1;read_a;tool:A;read_b;tool:B;system:S;user:2;");
  });

  it("have a result that says so where they have none", () => {
    const open = [user("1"), called, user("2")];
    const strict = `{% for m in messages %}{% if m.role == 'user' and loop.index0 > 0 and loop.previtem.tool_calls %}{{ raise_exception('no result') }}{% endif %}{% endfor %}${STRICT}`;
    expect(shaped(strict, open).slice(2)).toEqual([["tool", "(no result)\n\n2"]]);
    expect(shaped(TOLERANT, open)).toHaveLength(3);
  });

  it("are told by the user where results have no call", () => {
    const stray = [user("1"), given("x", "R"), answer("A"), user("2")];
    expect(rendered(ONE, stray)).toBe("user:1;user:<tool_response>\nR\n</tool_response>;assistant:A;user:2;");
  });

  it("have named arguments where the model wrote none", () => {
    const wrote = (args: string) => [user("1"), calls(call("a", args)), given("a", "A")];
    expect(rendered(ONE, wrote('{"x": 1'))).toBe('user:1;read_a arguments={"x": 1;tool:A;');
    expect(rendered(ONE, wrote('["x"]'))).toBe("user:1;read_a arguments=['x'];tool:A;");
    expect(rendered(ONE, wrote('{"x": 1}'))).toBe("user:1;read_a x=1;tool:A;");
  });

  it("stand behind a turn of the user, and answers that say nothing are left out", () => {
    const strict = `{% set first = (messages | rejectattr('role', 'eq', 'system') | list)[0] %}{% if first.role != 'user' %}{{ raise_exception('user first') }}{% endif %}
{%- for m in messages %}{% if m.role == 'assistant' and not m.content and not m.tool_calls %}{{ raise_exception('empty') }}{% endif %}{% endfor %}${STRICT}`;
    const talk = [system("S"), answer("A"), user("1"), answer(""), user("2")];
    expect(shaped(strict, talk)).toEqual([
      ["system", "S"],
      ["user", ""],
      ["assistant", "A"],
      ["user", "1\n\n2"],
    ]);
    expect(shaped(TOLERANT, talk)).toHaveLength(5);
  });

  it("keep a reminder with the turn before it where the next is joined, too", () => {
    expect(shaped(STRICT, [user("1"), system("S"), user("2")])).toEqual([["user", `1\n\n${reminder("S")}\n\n2`]]);
    const afterTool = [user("1"), called, result("R"), system("S"), user("2")];
    expect(shaped(STRICT, afterTool).slice(2)).toEqual([["tool", `R\n\n${reminder("S")}\n\n2`]]);
  });
});

const folder = new URL("../../../shared/cases/chat-templates/templates/", import.meta.url);
const names = existsSync(folder) ? readdirSync(folder) : [];
/** They fail on tools in transformers as they do here, or know no results of tools. */
const odd = /^(cz_|fireworks|google-gemma-2|llama-cpp|Kimi|MiroThinker|microsoft-Phi-3.5)/;
/** Those that refuse or leave out most, and some that take all. */
const real = names.filter((name) => !odd.test(name) && /emma|ral-|wen|gpt|LFM|mol|ranite|lama-3|Nemotron/.test(name));

describe.skipIf(names.length === 0)("templates of published models (needs ../shared)", () => {
  it.each(real)("%s shows all that an agent says, in its order", (name) => {
    const source = readFileSync(new URL(name, folder), "utf8");
    const template = new ChatTemplate(source, name);
    const words = [
      "sysone",
      "systwo",
      "userone",
      "usertwo",
      "resone",
      "systhree",
      "ansone",
      "sysfour",
      "userthree",
      "sysfive",
    ];
    const messages: Message[] = [
      system(words[0]!),
      system(words[1]!),
      user(words[2]!),
      user(words[3]!),
      called,
      result(words[4]!),
      system(words[5]!),
      answer(words[6]!),
      system(words[7]!),
      user(words[8]!),
      system(words[9]!),
    ];
    const tools = takesTools(source) ? [{ name: "read" }] : [];
    const { messages: input, options } = templateInput(template, messages, { tools });
    const text = template.render(input, { ...options, addGenerationPrompt: true });
    const places = words.map((word) => text.indexOf(word));
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(places[0]).toBeGreaterThanOrEqual(0);
  });
});
