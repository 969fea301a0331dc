/** Chat templates put together at random from pieces of Jinja, honest and hostile; each renders a conversation. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ChatTemplate } from "../../src/text/chat-template.ts";
import type { Random } from "../support/random.ts";
import type { Fuzzer } from "./child.ts";

const expressions = [
  "messages",
  "messages[0].content",
  "m.role",
  "x",
  "loop.index",
  "loop",
  "range(3)",
  "range(1000000000)",
  "'ab' * 3",
  "'a' * 1000000000",
  "10 ** 10 ** 10",
  "2 ** 64",
  "-7 // 2",
  "7 % 0",
  "1 / 0",
  "[1, 2, 3]",
  "{'a': 1, 'b': none}",
  "none",
  "true",
  "undefined_name",
  "namespace(n=0)",
  "ns.n",
  "[x] * 100000",
  "x ~ x",
  "dict(a=1)",
  "lipsum()",
  "''.join(messages)",
  "'%s' % x",
  "'{}'.format(x)",
  "messages.__class__",
  "f(1)",
  "caller()",
  "'a,b'.split(',')[::-1]",
  "x[1:1000000000:2]",
  "tools",
  "strftime_now('%d %b %Y')",
  "raise_exception('no')",
];
const filters = [
  "upper",
  "trim",
  "trim('a')",
  "length",
  "first",
  "last",
  "join(', ')",
  "tojson",
  "tojson(indent=1000000000)",
  "list",
  "sort",
  "unique",
  "default('d')",
  "replace('a', 'aaaaaaaa')",
  "indent(1000000)",
  "selectattr('role', 'equalto', 'user')",
  "map('upper')",
  "map(attribute='role')",
  "items",
  "dictsort",
  "batch(1000000000)",
  "slice(1000000000)",
  "int",
  "float",
  "string",
  "wordwrap(1)",
  "truncate(1)",
  "groupby('role')",
  "sum",
  "reverse",
  "xmlattr",
  "urlize",
  "nothing",
];
const tests = [
  "defined",
  "none",
  "string",
  "mapping",
  "iterable",
  "divisibleby(0)",
  "sameas(x)",
  "in(messages)",
  "odd",
  "nothing",
];

function expression(random: Random, depth = 0): string {
  const inner = () => (depth > 3 ? random.pick(expressions) : expression(random, depth + 1));
  const kind = random.integer(0, 8);
  if (kind === 0) return `${inner()} | ${random.pick(filters)}`;
  if (kind === 1)
    return `(${inner()}) ${random.pick(["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or", "not in"])} (${inner()})`;
  if (kind === 2) return `${inner()} is ${random.pick(tests)}`;
  if (kind === 3) return `${inner()} if ${inner()} else ${inner()}`;
  if (kind === 4 && random.next() < 0.05) return `${"(".repeat(20_000)}x${")".repeat(20_000)}`;
  return random.pick(expressions);
}

function statement(random: Random, depth = 0): string {
  const body = () => (depth > 4 ? "t" : statements(random, depth + 1));
  const value = () => expression(random);
  const kinds = [
    () => `{{ ${value()} }}`,
    () => `{% set x = ${value()} %}`,
    () => `{% set ns.n = ${value()} %}`,
    () => `{% for m in ${value()} %}${body()}{% endfor %}`,
    () => `{% for m in range(100000) %}${body()}{% endfor %}`,
    () =>
      `{% for a, b in ${value()} if ${value()} recursive %}${body()}{{ loop(${value()}) }}{% else %}${body()}{% endfor %}`,
    () => `{% if ${value()} %}${body()}{% elif ${value()} %}${body()}{% else %}${body()}{% endif %}`,
    () => `{% macro f(a, b=1) %}${body()}{{ f(a) }}{% endmacro %}{{ f(1) }}`,
    () => `{% call f(1) %}${body()}{% endcall %}`,
    () => `{% filter ${random.pick(filters)} %}${body()}{% endfilter %}`,
    () => `{% set x %}${body()}{% endset %}`,
    () =>
      random.pick([
        "{% break %}",
        "{% continue %}",
        "{% raw %}{{{% endraw %}",
        "{# c #}",
        "{%- if x -%}",
        "{% include 'a' %}",
        "{{",
        "%}",
      ]),
    () => random.pick(["text", "\r\n", "  ", "{% set x = x ~ x %}", "{% set x = x + x %}", "\u0000", "é"]),
  ];
  return random.pick(kinds)();
}

function statements(random: Random, depth = 0): string {
  return Array.from({ length: random.integer(1, 4) }, () => statement(random, depth)).join("");
}

const conversation = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Hi & <bye>" },
  {
    role: "assistant",
    content: null,
    tool_calls: [{ id: "1", function: { name: "f", arguments: { a: [1, 2.5, true] } } }],
  },
];

export const fuzzTemplates: Fuzzer = async (keep) => async (random, seed) => {
  const source = statements(random);
  if (keep !== null) await writeFile(join(keep, `templates-${seed}.jinja`), source);
  const template = new ChatTemplate(source, "fuzz.jinja");
  template.render(conversation, { addGenerationPrompt: true, bosToken: "<s>", eosToken: "</s>" });
};
