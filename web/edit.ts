/** Changes a question in its place. */

import type { StoredMessage } from "./conversations.ts";
import { button, element } from "./dom.ts";

/** Puts a field in the place of a message's text; `done` gets the new text. */
export function editMessage(message: StoredMessage, shown: HTMLElement, done: (text: string) => void): void {
  if (shown.querySelector("form")) return;
  const field = element("textarea", "");
  field.ariaLabel = "Changed message";
  field.dir = "auto";
  field.rows = 4;
  field.value = message.content;
  const send = element("button", "main", "Send again");
  const hidden = [...shown.children].slice(1) as HTMLElement[];
  const close = () => {
    form.remove();
    for (const element of hidden) element.hidden = false;
    shown.querySelector<HTMLButtonElement>(".actions button:last-child")?.focus();
  };
  const form = element("form", "edit", field, element("div", "row", send, button("Cancel", close)));
  form.onsubmit = (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (text === "" && !message.attachments?.length) return;
    close();
    done(text);
  };
  form.onkeydown = (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    close();
  };
  for (const element of hidden) element.hidden = true;
  shown.append(form);
  field.focus();
}
