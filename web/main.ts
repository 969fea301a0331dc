/** The page: conversations with a model that runs in this page, or on the server that it comes from. */
import { type Attachment, ConversationStore, newConversation } from "./conversations.ts";
import { button, element, find, say, unlessBlocked } from "./dom.ts";
import { watchFocus } from "./focus.ts";
import { begin, load, runsHere } from "./loader.ts";
import { startShell } from "./shell.ts";
import { isAnswering, isReady, page, show, showStart } from "./state.ts";
import { keepUnsent, unsentOf } from "./unsent.ts";

/** What shows messages and asks, when there is something to show or ask. */
const chat = () => import("./chat.ts");

const input = find<HTMLTextAreaElement>("input");
const file = find<HTMLInputElement>("file");
const attach = find<HTMLInputElement>("attach");
const system = find<HTMLTextAreaElement>("system");
let attached: Attachment[] = [];

/** The conversation that this tab shows. */
const OPEN = "lowbit-open";

/** What was not sent belongs to one conversation, or the next new one. */
const unsentId = () => (page.conversation.messages.length > 0 ? page.conversation.id : "");

/** Whether a key belongs to an input method. Safari tells of the one that ends a composition by its code only. */
function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

function showAttached(): void {
  const chips = attached.map((attachment) => {
    const remove = () => {
      attached = attached.filter((other) => other !== attachment);
      showAttached();
      input.focus();
    };
    return element("li", "", attachment.name, button("×", remove, `Remove ${attachment.name}`));
  });
  find("attached").replaceChildren(...chips);
}

/** Models are loaded, texts are attached. */
async function take(files: readonly File[]): Promise<void> {
  const { isModel, readAttachment } = await import("./files.ts");
  for (const given of files)
    try {
      if (isModel(given)) return void load(given);
      attached.push(await readAttachment(given));
      say(`Attached ${given.name}`);
    } catch (error) {
      say(`Cannot attach: ${(error as Error).message}`);
    }
  showAttached();
  input.focus();
}

function startCompose(): void {
  const compose = find<HTMLFormElement>("compose");
  compose.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if ((text === "" && attached.length === 0) || !isReady()) return;
    const files = attached;
    input.value = "";
    keepUnsent(unsentId(), "");
    attached = [];
    showAttached();
    showStart(false);
    // The button that has the focus is hidden next.
    if (compose.contains(document.activeElement)) input.focus();
    // At once, so that nothing is asked twice, and that the reader may turn elsewhere while modules load.
    show("answering");
    watchFocus();
    void chat().then(({ ask }) => ask(text, files));
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    compose.requestSubmit();
  });
  input.addEventListener("input", () => keepUnsent(unsentId(), input.value));
  find("stop").addEventListener("click", () => page.running?.abort());
  document.addEventListener("attached", (event) => {
    attached.push((event as CustomEvent<Attachment>).detail);
    showAttached();
  });
  attach.addEventListener("change", () => {
    const files = [...attach.files!];
    attach.value = "";
    void take(files);
  });
}

function startModels(): void {
  find<HTMLFormElement>("load").addEventListener("submit", (event) => {
    event.preventDefault();
    void load(find<HTMLInputElement>("url").value);
  });
  find("load").hidden = !runsHere;
  file.addEventListener("change", () => {
    const chosen = file.files?.[0];
    // So that choosing the same file again is a change, too.
    file.value = "";
    if (chosen) void load(chosen);
  });
  find("cancel").addEventListener("click", () => page.running?.abort());
  find("model").addEventListener("click", () => {
    const isHidden = find("talk").checkVisibility() === false;
    showTalk();
    showStart(isHidden || find("start").hidden === true);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.dataset.drop = "";
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => {
    if (!relatedTarget) delete document.body.dataset.drop;
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    delete document.body.dataset.drop;
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length > 0) void take(files);
  });
}

const isNarrow = () => matchMedia("(max-width: 60rem)").matches;
const PANELS = ["nav", "panel"] as const;

/** Opens or closes panels beside the conversation; on narrow screens one at most, in its place. */
function showPanels(open: readonly (typeof PANELS)[number][]): void {
  for (const name of PANELS) {
    const isOpen = open.includes(name);
    if (isOpen) document.body.dataset[name] = "";
    else delete document.body.dataset[name];
    find(`${name}-toggle`).ariaExpanded = `${isOpen}`;
  }
  void showFigures();
}

function toggle(name: (typeof PANELS)[number]): void {
  const open = PANELS.filter((other) => document.body.dataset[other] !== undefined);
  if (open.includes(name)) showPanels(open.filter((other) => other !== name));
  else showPanels(isNarrow() ? [name] : [...open, name]);
}

/** The menu of narrow screens. */
function showMenu(isOpen: boolean): void {
  if (isOpen) document.body.dataset.actions = "";
  else delete document.body.dataset.actions;
  find("more").ariaExpanded = `${isOpen}`;
}

/** On narrow screens, shows the conversation in the place of a panel. */
function showTalk(): void {
  if (isNarrow()) showPanels([]);
}

async function showFigures(): Promise<void> {
  if (page.model && document.body.dataset.panel !== undefined)
    await (await import("./figures.ts")).showFigures(page.model).catch(() => {});
}

/** The conversations of the list, each in the place of the one that is open. */
async function open(id: string | null): Promise<void> {
  if (id === page.conversation.id) {
    showTalk();
    showStart(false);
    input.focus();
    return;
  }
  if (isAnswering()) page.running?.abort();
  const conversation = id === null ? newConversation() : await page.store!.get(id);
  if (!conversation) return;
  page.conversation = conversation;
  unlessBlocked(() => sessionStorage.setItem(OPEN, conversation.id));
  system.value = conversation.system;
  input.value = unsentOf(unsentId());
  find("corner").textContent = "";
  showTalk();
  if (page.model || conversation.messages.length > 0) showStart(false);
  else showStart(true);
  if (conversation.messages.length > 0) (await chat()).showConversation();
  else find("messages").replaceChildren();
  await refresh();
  input.focus();
}

let refreshed: Promise<void> = Promise.resolve();

/** Shows the list as it is now, one call after the other, so that none shows an older one. */
function refresh(): Promise<void> {
  refreshed = refreshed.then(showTitles, showTitles);
  return refreshed;
}

async function showTitles(): Promise<void> {
  const titles = (await page.store?.list()) ?? [];
  find("no-conversations").hidden = titles.length > 0;
  find("kept").hidden = page.store?.isKept !== false;
  if (titles.length === 0) find("list").replaceChildren();
  else (await import("./list.ts")).showList(page.store!, titles, page.conversation.id, { open, changed });
}

async function changed(id: string, title: string | null): Promise<void> {
  if (title === null) page.deleted.add(id);
  if (id === page.conversation.id) {
    if (title === null) await open(null);
    else page.conversation.title = title;
  }
  await refresh();
}

async function startConversations(): Promise<void> {
  page.store = await ConversationStore.open();
  page.store.onChange = async (id) => {
    const now = id === page.conversation.id && !isAnswering() ? await page.store!.get(id) : null;
    if (now) {
      page.conversation = now;
      system.value = now.system;
      (await chat()).showConversation();
    }
    await refresh();
  };
  document.addEventListener("kept", () => {
    unlessBlocked(() => sessionStorage.setItem(OPEN, page.conversation.id));
    void refresh();
  });
  find("reset").addEventListener("click", async () => {
    await open(null);
    say("New conversation");
  });
  system.addEventListener("change", async () => {
    page.conversation.system = system.value;
    await (await chat()).keep(page.conversation);
  });
  const last = unlessBlocked(() => sessionStorage.getItem(OPEN));
  input.value ||= unsentOf(unsentId());
  if (last !== null && page.conversation.messages.length === 0) await open(last);
  await refresh();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || isComposing(event) || document.querySelector("dialog")) return;
  if (document.body.dataset.actions !== undefined) {
    showMenu(false);
    find("more").focus();
  } else if (isAnswering() || !find("loading").hidden) page.running?.abort();
  else showTalk();
});
document.addEventListener("answered", () => void showFigures());
find("more").addEventListener("click", () => showMenu(document.body.dataset.actions === undefined));
document.addEventListener("click", ({ target }) => {
  if (!find("more").contains(target as Node)) showMenu(false);
});
for (const name of PANELS) find(`${name}-toggle`).addEventListener("click", () => toggle(name));
find<HTMLFormElement>("settings").addEventListener("submit", (event) => event.preventDefault());
startShell(find<HTMLButtonElement>("theme"), runsHere);
startCompose();
startModels();
show("empty");
showStart(true);
void startConversations();
void begin();
