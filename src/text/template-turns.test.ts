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
