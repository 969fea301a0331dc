/** The list of conversations: opened, renamed, exported, deleted. */
import type { ConversationStore, Title } from "./conversations.ts";
import { button, element, find, say } from "./dom.ts";

interface ListActions {
  open(id: string): unknown;
  /** Called when a conversation is not as it was: its new title, or null when it is gone. */
  changed(id: string, title: string | null): Promise<void>;
}

/** Shows the conversations that are kept; `current` is the one that is open. */
export function showList(
  store: ConversationStore,
  titles: readonly Title[],
  current: string,
  actions: ListActions,
): void {
  const focused = document.activeElement?.closest<HTMLElement>("#list li")?.dataset.id;
  const items = titles.map((title) => itemOf(store, title, title.id === current, actions));
  find("list").replaceChildren(...items);
  items
    .find(({ dataset }) => dataset.id === focused)
    ?.querySelector("button")
    ?.focus();
}

function itemOf(store: ConversationStore, { id, title }: Title, isOpen: boolean, actions: ListActions): HTMLElement {
  const shown = title || "Without a title";
  const open = button(shown, () => actions.open(id));
  if (isOpen) open.ariaCurrent = "true";
  const menu = element("details", "menu");
  const summary = element("summary", "", "⋯");
  summary.ariaLabel = `Actions: ${shown}`;
  const acts = element(
    "div",
    "",
    button("Rename", () => rename(store, id, actions)),
    button("Export as Markdown", () => exportAs(store, id, "md")),
    button("Export as JSON", () => exportAs(store, id, "json")),
    button("Delete", () => remove(store, id, shown, actions)),
  );
  acts.onclick = () => {
    menu.open = false;
    summary.focus();
  };
  menu.append(summary, acts);
  const item = element("li", "", open, menu);
  item.dataset.id = id;
  return item;
}

async function rename(store: ConversationStore, id: string, { changed }: ListActions): Promise<void> {
  const conversation = await store.get(id);
  if (!conversation) return;
  const { ask } = await import("./dialog.ts");
  const title = await ask({ title: "Rename", text: "Title", action: "Rename", value: conversation.title });
  if (!title?.trim()) return;
  await store.put({ ...conversation, title: title.trim() });
  await changed(id, title.trim());
}

async function exportAs(store: ConversationStore, id: string, format: "json" | "md"): Promise<void> {
  const conversation = await store.get(id);
  if (conversation) (await import("./export.ts")).download(conversation, format);
}

async function remove(store: ConversationStore, id: string, title: string, { changed }: ListActions): Promise<void> {
  const { ask } = await import("./dialog.ts");
  const text = `“${title}” cannot be brought back afterwards.`;
  if ((await ask({ title: "Delete this conversation?", text, action: "Delete" })) === null) return;
  await store.delete(id);
  await changed(id, null);
  say("Deleted");
}
