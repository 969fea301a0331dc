/** Characters of HTML to their entities and back, as markupsafe does it. */
import { chargeText } from "./limits.ts";

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&#34;",
  "'": "&#39;",
};

export function escapeHtml(text: string): string {
  chargeText(text.length);
  const escaped = text.replace(/[&<>"']/g, (character) => ENTITIES[character]!);
  chargeText(escaped.length);
  return escaped;
}
