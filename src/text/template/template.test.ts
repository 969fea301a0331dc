/** Templates against jinja2 3.1.6: snippets of our own, and the public chat templates where they are at hand. */
import { existsSync, readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ChatTemplate, type TemplateMessage } from "../chat-template.ts";
import { TemplateFault } from "./faults.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import { Template } from "./template.ts";

const render = (source: string, variables: Record<string, unknown> = {}) =>
  new Template(source, DEFAULT_LIMITS).render(variables, DEFAULT_LIMITS);

type Snippet = readonly [template: string, text: string | null, error: string | null];

/** Made by scripts/goldens/template-goldens.py: what jinja2 renders, and the class of what it raises for the others. */
const readGolden = (name: string) => JSON.parse(readFileSync(new URL(`${name}.json.golden`, import.meta.url), "utf8"));
const { variables, snippets: rendered } = readGolden("rendered") as {
  readonly variables: Record<string, unknown>;
  readonly snippets: readonly Snippet[];
};
const { snippets: refused } = readGolden("refused") as { readonly snippets: readonly Snippet[] };

describe("snippets as jinja2 renders them", () => {
  beforeEach(() => void vi.useFakeTimers({ now: new Date(2026, 10, 5, 9, 7, 3), toFake: ["Date"] }));
  afterEach(() => void vi.useRealTimers());

  it.each(rendered)("%j", (template, text) => {
    expect(render(template, variables)).toBe(text);
  });
});

describe("snippets that jinja2 refuses", () => {
  it.each(refused)("%j", (template) => {
    expect(() => render(template, variables)).toThrow(TemplateFault);
  });
});

const cases = new URL("../../../../shared/cases/chat-templates/", import.meta.url);

interface Conversation {
  readonly messages: readonly TemplateMessage[];
  readonly tools: readonly unknown[] | null;
  readonly documents: readonly unknown[] | null;
  readonly add_generation_prompt: boolean;
  readonly extra: Record<string, unknown>;
}

describe("public chat templates", () => {
  afterEach(() => vi.useRealTimers());

  it("render 1302 conversations as transformers renders them", ({ skip }) => {
    if (!existsSync(cases)) skip("../shared/cases/chat-templates is absent; these templates are their authors'");
    const { conversations, rendered } = JSON.parse(readFileSync(new URL("golden.json", cases), "utf8")) as {
      conversations: readonly Conversation[];
      rendered: Record<string, readonly [number, string][]>;
    };
    vi.useFakeTimers({ now: new Date(2026, 10, 25, 12), toFake: ["Date"] });
    let count = 0;
    for (const [file, texts] of Object.entries(rendered)) {
      const template = new ChatTemplate(readFileSync(new URL(`templates/${file}`, cases), "utf8"), file);
      for (const [index, text] of texts) {
        const { messages, tools, documents, add_generation_prompt, extra } = conversations[index]!;
        const options = { tools, documents, addGenerationPrompt: add_generation_prompt, ...extra };
        expect(template.render(messages, { ...options, bosToken: "<BOS>", eosToken: "<EOS>" }), file).toBe(text);
        count++;
      }
    }
    expect(count).toBe(1302);
  });
});

// What jinja2 3.1.6 renders, for rules that random templates seldom meet.
describe("rules of jinja2", () => {
  it.each([
    [
      "{% macro f(a, c=a) %}{{ a }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, q=4) }}",
      "11(){}12(3,){'q': 4}",
    ],
    ["{% macro f(a) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f }}", "f('a',)<Macro 'f'>"],
    ["{% macro a() %}{{ q }}{% endmacro %}{% set q = 3 %}{{ a() }}", "3"],
    ["{% for i in [1, 2] %}{{ v }}{% endfor %}{% set v = 9 %}{{ v }}", "9"],
    ["{% for i in [1, 2] %}{{ v }}{% set v = i %}{{ v }}{% endfor %}{{ v }}", "01020"],
    ["{% for i in [3, 1] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% else %}E{% endfor %}", "3"],
    ["{% for i in [1] %}x{% break %}{% else %}E{% endfor %}", "xE"],
    ["{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -1|abs }} {{ 1 ~ 2 * 3 }} {{ 1 < 3 > 2 }}", "4 64 1 16 True"],
    [
      "{{ 1e16 }} {{ 0.00001 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ 2 ** 100 }}",
      "1e+16 1e-05 -4 -2 1267650600228229401496703205376",
    ],
  ])("%s", (template, text) => expect(render(template, { v: 0 })).toBe(text));
});

describe("what no public template calls", () => {
  it.each([
    ["{{ 'a b'|wordwrap(1) }}", "filter wordwrap"],
    ["{% for i in [1]|batch(2) %}{% endfor %}", "filter batch"],
    ["{{ [['a']]|map('urlize')|list }}", "filter urlize"],
    ["{{ 2.5|round }}", "filter round"],
    ["{{ '{}'.format(1) }}", "method format"],
    ["{{ 'a'.center(3) }}", "method center"],
    ["{{ joiner()() }}", "function joiner"],
    ["{{ '%s' % 1 }}", "operator % (of a text)"],
  ])("%s is refused by name", (template, name) => {
    expect(() => render(template)).toThrow(`Jinja's ${name} is not supported`);
  });
});

describe("values of JavaScript", () => {
  it("come as JSON's: integers, floats, None for null, no keys for undefined", () => {
    const value = [1, -0, 1.5, 2 ** 60, 1e25, null, true, "a", { b: undefined, c: [] }, new Date(0)];
    const text = "[1, 0, 1.5, 1152921504606846976, 1e+25, None, True, 'a', {'c': []}, '1970-01-01T00:00:00.000Z']";
    expect(render("{{ v }}", { v: value })).toBe(text);
    expect(render("{{ v is defined }}{{ w is defined }}", { v: null, w: undefined })).toBe("TrueFalse");
  });

  it("are copied: neither accessors nor prototypes are reached", () => {
    const template = "{{ v.constructor }}{{ v.toString }}{{ v['__proto__'] }}{{ v.own }}{{ [].length }}{{ ''.length }}";
    expect(render(template, { v: { own: 1 } })).toBe("1");
    expect(render("{{ v.hasOwnProperty }}", { v: JSON.parse('{"__proto__": {"hasOwnProperty": 1}}') })).toBe("");
  });
});

describe("strftime_now", () => {
  afterEach(() => vi.useRealTimers());

  // Python 3.11 with glibc 2.36: datetime(2026, 11, 5, 9, 7, 3).strftime(...) and so on.
  it.each([
    [new Date(2026, 10, 5, 9, 7, 3), "%a %A %b %B %d %e %j", "Thu Thursday Nov November 05  5 309"],
    [new Date(2026, 10, 5, 9, 7, 3), "%H %I %M %S %p %y %Y", "09 09 07 03 AM 26 2026"],
    [
      new Date(2026, 10, 5, 9, 7, 3),
      "%c|%x|%X|%D|%F|%T|%R",
      "Thu Nov  5 09:07:03 2026|11/05/26|09:07:03|11/05/26|2026-11-05|09:07:03|09:07",
    ],
    [new Date(2026, 10, 5, 9, 7, 3), "%-d %-e %-m %-H %-j %%|%z|%Z|", "5 5 11 9 309 %|||"],
    [new Date(2027, 0, 1, 0, 0, 0), "%j %-j %I %p", "001 1 12 AM"],
    [new Date(2024, 11, 30, 13, 0, 0), "%j %I %p", "365 01 PM"],
  ])("%s %s", (now, format, text) => {
    vi.useFakeTimers({ now, toFake: ["Date"] });
    expect(render("{{ strftime_now(f) }}", { f: format })).toBe(text);
  });

  it.each(["%U", "%_d", "%05d"])("refuses %s", (format) => {
    expect(() => render("{{ strftime_now(f) }}", { f: format })).toThrow(/directive of strftime %. is not supported/);
  });
});
