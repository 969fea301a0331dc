/** Escapes HTML characters to entities, as markupsafe does. */
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
