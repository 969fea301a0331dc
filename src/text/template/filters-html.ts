/** Jinja's filters of HTML. */
import { escapeHtml } from "./escape-html.ts";
import { toText } from "./print.ts";
import { type Signature, signature } from "./signature.ts";
import { Markup, type Value } from "./values.ts";

function escaped(value: Value): Markup {
  return value instanceof Markup ? value : new Markup(escapeHtml(toText(value)));
}

export const HTML_FILTERS: Readonly<Record<string, Signature>> = {
  e: signature("s", escaped),
  escape: signature("s", escaped),
  safe: signature("value", (value: Value) => (value instanceof Markup ? value : new Markup(toText(value)))),
};
