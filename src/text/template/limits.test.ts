/** Templates that would hang, exhaust memory or overflow the stack end with an error that names the limit. */
import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../../errors.ts";
import { ChatTemplate, type TemplateLimits } from "../chat-template.ts";

/** Enough for any chat, little enough that tests end soon. */
const limits: Partial<TemplateLimits> = { steps: 300_000, characters: 200_000, depth: 100 };
const HUGE = 10 ** 9;

function failure(source: string, own = limits): string {
  try {
    new ChatTemplate(source, "strange.jinja", own).render([{ role: "user", content: "hi" }]);
  } catch (cause) {
    expect(cause).toBeInstanceOf(InvalidFileError);
    return (cause as Error).message;
  }
  return "rendered";
}

const doubled = (operator: string) =>
  `{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ${operator} ns.s %}{% endfor %}{{ ns.s }}`;
const nested = (levels: number, open: string, inside: string, close: string) =>
  open.repeat(levels) + inside + close.repeat(levels);

describe("limits of rendering", () => {
  it.each([
    ["{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"],
    ["{% for i in range(9999) %}{{ range(99999)|list|sum }}{% endfor %}", "steps"],
    ["{{ range(99999)|map('string')|map('length')|sum + range(99999)|list|sort|length }}", "steps"],
    [`{{ [0] * ${HUGE} }}`, "steps"],
    ["{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "steps"],
    [
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "steps",
    ],
    [`{{ 'a' * ${HUGE} }}`, "characters"],
    [doubled("~"), "characters"],
    [doubled("+"), "characters"],
    ["{% for i in range(9999) %}{{ 'x' * 1000 }}{% endfor %}", "characters"],
    [`{{ 'a'|indent(${HUGE}, true) }}`, "characters"],
    [`{{ [1]|tojson(indent=${HUGE}) }}`, "characters"],
    ["{% set s = 'a' * 1000 %}{{ s.replace('a', s) }}", "characters"],
    ["{% set s = 'a' * 1000 %}{{ s.join(s) }}", "characters"],
    ["{{ (range(999)|list)|join('a' * 1000) }}", "characters"],
    [
      "{% set ns = namespace(l=['a']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "",
    ],
    [
      "{% set ns = namespace(l=['a']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
      "",
    ],
    ["{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "depth"],
    ["{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "depth"],
    ["{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "depth"],
    [
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
      "depth",
    ],
    [
      "{% set ns = namespace(l=[], m=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "depth",
    ],
    ["{{ 10 ** (10 ** 10) }}", "an integer of more than"],
    ["{{ 10 ** 10 ** 10 ** 10 ** 10 ** 10 }}", "an integer of more than"],
    [
      "{% set ns = namespace(n=99) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
      "an integer of more than",
    ],
  ])("%s", (source, limit) => {
    expect(failure(source)).toMatch(/^strange\.jinja: line 1: (makes|takes|nests) /);
    expect(failure(source)).toContain(limit.includes(" ") || limit === "" ? limit : `limit "${limit}"`);
  });

  it("takes Python's own limits for what they are", () => {
    expect(failure(`{{ range(${HUGE}) }}`)).toContain("OverflowError: Range too big");
    expect(failure("{{ 10 ** 5000 }}")).toContain("ValueError: Exceeds the limit (4300 digits)");
  });

  it("ends searches of long texts for long patterns, which built-in searches do not", () => {
    const source =
      "{% set s = 'a' * 400000 %}{% set p = 'b' + 'a' * 200000 %}{{ p in s }}{{ s.rfind(p) }}{{ s.count(p) }}{{ s.split(p)|length }}";
    expect(new ChatTemplate(source, "t.jinja", { milliseconds: 60_000 }).render([])).toBe("False-101");
  });

  it("ends by time when steps allow more", () => {
    const source = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    expect(failure(source, { steps: 1e12, milliseconds: 20 })).toContain(
      'takes longer than 20 ms (limit "milliseconds")',
    );
  });

  it("can be set later, for templates that a model came with", () => {
    const template = new ChatTemplate("{% for i in range(99) %}{{ i }}{% endfor %}", "t.jinja");
    template.limits = { steps: 50 };
    expect(template.limits).toMatchObject({ steps: 50, depth: 200 });
    expect(() => template.render([])).toThrow('t.jinja: line 1: takes more than 50 steps (limit "steps")');
    template.limits = {};
    expect(template.render([])).toHaveLength(188);
  });

  it("counts anew for each rendering", () => {
    const template = new ChatTemplate("{% for i in range(99) %}{{ i }}{% endfor %}", "t.jinja", { steps: 1000 });
    for (let i = 0; i < 20; i++) expect(template.render([])).toHaveLength(188);
  });
});

describe("limits of parsing", () => {
  it.each([
    `{{ ${nested(5000, "(", "1", ")")} }}`,
    `{{ ${nested(5000, "[", "1", "]")} }}`,
    `{{ ${nested(5000, "{1: ", "1", "}")} }}`,
    `{{ ${"not ".repeat(5000)}x }}`,
    `{{ ${"-".repeat(5000)}1 }}`,
    `{{ 1${" + 1".repeat(5000)} }}`,
    `{{ x${".a".repeat(5000)} }}`,
    `{{ x${"|upper".repeat(5000)} }}`,
    `{{ x${"()".repeat(5000)} }}`,
    `{{ ${"1 if x else ".repeat(5000)}2 }}`,
    nested(5000, "{% if x %}", "1", "{% endif %}"),
    nested(5000, "{% for x in y %}", "1", "{% endfor %}"),
  ])("refuses what nests too deep: %.30s", (source) => {
    const message = failure(source, {});
    expect(message).toMatch(/^strange\.jinja: expected a Jinja template: /);
    expect(message).toContain('limit "depth"');
  });

  it("refuses long sources, and reads long tags in linear time", () => {
    expect(failure("x".repeat(1001), { characters: 1000 })).toContain('limit "characters"');
    expect(failure(`${"{% ".repeat(300_000)}`, {})).toContain("strange.jinja: expected a Jinja template: ");
    expect(failure(`${" \n".repeat(300_000)}{{ x`, {})).toContain("strange.jinja: expected a Jinja template: ");
    expect(failure(`{{ ${"1_".repeat(300_000)} }}`, {})).toContain("strange.jinja: expected a Jinja template: ");
  });
});
