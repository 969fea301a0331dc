/** Questions that hold the page until they are answered. */

export interface Question {
  readonly title: string;
  readonly text: string;
  /** What the button says that does it. */
  readonly action: string;
  /** What a second button says that does it, and all of its kind from then on. */
  readonly always?: string;
  /** What the field has at first; without it, there is no field. */
  readonly value?: string;
  /** Whether what is written is not shown. */
  readonly isSecret?: boolean;
}

/** What was written, or an empty text where there is no field, or "always"; null where the reader wants nothing done. */
export function ask({ title, text, action, always, value, isSecret = false }: Question): Promise<string | null> {
  const dialog = document.createElement("dialog");
  const form = document.createElement("form");
  form.method = "dialog";
  const heading = add(form, "h2", title);
  heading.id = "question";
  dialog.setAttribute("aria-labelledby", "question");
  const label = add(form, value === undefined ? "p" : "label", text) as HTMLLabelElement;
  const field = value === undefined ? null : (add(form, "input", "") as HTMLInputElement);
  if (field) {
    field.id = "question-field";
    label.htmlFor = field.id;
    field.value = value!;
    field.required = true;
    field.autocomplete = "off";
    if (isSecret) field.type = "password";
  }
  const row = add(form, "div", "");
  row.className = "row";
  const confirm = add(row, "button", action) as HTMLButtonElement;
  confirm.className = "main";
  confirm.value = "do";
  if (always !== undefined) (add(row, "button", always) as HTMLButtonElement).value = "always";
  const cancel = add(row, "button", "Cancel") as HTMLButtonElement;
  cancel.type = "button";
  cancel.onclick = () => dialog.close();
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  field?.select();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      dialog.remove();
      const { returnValue } = dialog;
      resolve(returnValue === "do" ? (field?.value ?? "") : returnValue || null);
    };
  });
}

function add(parent: HTMLElement, tag: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}
