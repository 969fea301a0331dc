/** Templates of published models, and our own in the form of some, by their names. */
import { readdirSync, readFileSync } from "node:fs";
import { ChatTemplate } from "../../src/text/chat-template.ts";

const folder = new URL("../templates/", import.meta.url);

/** Names without `.jinja`. */
export const templateNames: readonly string[] = readdirSync(folder)
  .filter((name) => name.endsWith(".jinja"))
  .map((name) => name.slice(0, -".jinja".length));

export function chatTemplate(name: string): ChatTemplate {
  return new ChatTemplate(readFileSync(new URL(`${name}.jinja`, folder), "utf8"), name);
}
