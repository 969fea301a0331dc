/** The page: loads a program into a worker, chats with it, shows how it runs. */
import { ContextLengthError, loadModel, type WebModel } from "lowbit/web";
import { showFigures } from "./figures.ts";
import { readSettings } from "./settings.ts";
import { startShell } from "./shell.ts";

const find = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const messages = find("messages");
const status = find("status");
const progress = find<HTMLProgressElement>("progress");
const amount = find("amount");
const input = find<HTMLTextAreaElement>("input");
const send = find<HTMLButtonElement>("send");
const stop = find<HTMLButtonElement>("stop");
const reset = find<HTMLButtonElement>("reset");
const cancel = find<HTMLButtonElement>("cancel");
const url = find<HTMLInputElement>("url");
const file = find<HTMLInputElement>("file");

let model: WebModel | null = null;
/** Ends the load or the answer that runs. */
let running: AbortController | null = null;

/** What can be used now. */
function show(state: "empty" | "loading" | "ready" | "answering"): void {
  const isReady = state === "ready";
  input.disabled = state === "empty" || state === "loading";
  send.disabled = !isReady;
  reset.disabled = !isReady;
  send.hidden = state === "answering";
  stop.hidden = state !== "answering";
  cancel.hidden = state !== "loading";
  find("loading").hidden = state !== "loading";
  find<HTMLButtonElement>("fetch").disabled = state === "loading";
}

/** To those who listen, too, so what changes all the time is not said here. */
function say(text: string): void {
  status.textContent = text;
}

/** Characters of a question that are shown: laying out megabytes of a pasted text keeps the page from hearing Stop. */
const SHOWN_LENGTH = 20_000;

function shortened(text: string): string {
  const rest = text.length - SHOWN_LENGTH;
  return rest > 0 ? `${text.slice(0, SHOWN_LENGTH)}… (${rest} more characters)` : text;
}

/** A message, and where its text is. */
function addMessage(role: "user" | "model", text: string): { message: HTMLElement; body: HTMLElement } {
  const message = document.createElement("article");
  message.className = `message ${role}`;
  const who = document.createElement("b");
  who.textContent = role === "user" ? "You" : "Model";
  const body = document.createElement("span");
  body.textContent = text;
  message.append(who, body);
  messages.append(message);
  message.scrollIntoView({ block: "end" });
  return { message, body };
}

/** Takes a message back that has no answer, as the model does. */
function takeBack(text: string, shown: readonly HTMLElement[]): void {
  for (const message of shown) message.remove();
  if (input.value === "") input.value = text;
}

/** Where the focus was when the load or the answer that runs began, and whether the reader has turned elsewhere since. */
let origin: HTMLElement = document.body;
let isElsewhere = false;

function watchFocus(): void {
  origin = document.activeElement as HTMLElement;
  isElsewhere = false;
}

for (const event of ["focusin", "input"])
  document.addEventListener(event, ({ target }) => {
    // Windows that come to the front focus again what had the focus.
    if (event === "focusin" && target === origin) return;
    isElsewhere = target !== cancel && !find("compose").contains(target as Node);
  });

/** When something has ended: the reader goes on here, unless he does already somewhere else. */
function focusNext(element: HTMLElement): void {
  if (!isElsewhere) element.focus();
}

/** Adds to an answer and keeps its end in view, unless the reader has scrolled away from it. */
function addText(body: HTMLElement, text: string): void {
  const isAtEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 48;
  body.append(text);
  if (isAtEnd) messages.scrollTop = messages.scrollHeight;
}

/** How often an answer is written on: each time all of it is laid out anew, which is more work the longer it is. */
const WRITE_MS = 50;

/** Writes an answer while it comes. */
async function write(answer: AsyncIterable<string>, body: HTMLElement): Promise<void> {
  let text = "";
  const writeOn = () => {
    if (text !== "") addText(body, text);
    text = "";
  };
  const timer = setInterval(writeOn, WRITE_MS);
  try {
    for await (const piece of answer) text += piece;
  } finally {
    clearInterval(timer);
    writeOn();
  }
}

/** How far a file is; `total` is 0 where it is not known. */
function showProgress(done: number, total: number): void {
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  if (total > 0) progress.value = done / total;
  else progress.removeAttribute("value");
  amount.textContent = done > 0 ? `${megabytes(done)}${total > 0 ? ` of ${megabytes(total)}` : ""} MB` : "";
}

/** Puts another model in the place of the one there is. */
async function load(source: string | File): Promise<void> {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  watchFocus();
  model?.dispose();
  model = null;
  messages.replaceChildren();
  show("loading");
  showProgress(0, 0);
  say(`Loading ${typeof source === "string" ? source : source.name}`);
  try {
    const loaded = await loadModel(source, { signal: controller.signal, onProgress: showProgress });
    if (running !== controller) {
      loaded.dispose();
      return;
    }
    model = loaded;
    const kept = loaded.facts.isCached === false ? "; it could not be kept for the next visit" : "";
    say(`Ready: ${loaded.facts.name.split("/").at(-1)}${kept}`);
    show("ready");
    await showFigures(loaded, null);
    focusNext(input);
  } catch (error) {
    if (running !== controller) return;
    say(controller.signal.aborted ? "Loading was cancelled" : `Cannot load: ${(error as Error).message}`);
    show("empty");
    // The button that began it could not keep the focus.
    focusNext(controller.signal.aborted ? url : origin);
  }
}

/** One turn; a model without a chat template continues the text. */
async function talk(text: string): Promise<void> {
  if (!model) return;
  const current = model;
  const controller = new AbortController();
  running = controller;
  const question = addMessage("user", shortened(text));
  const { message, body } = addMessage("model", "");
  // The button that has the focus is hidden next.
  if (document.activeElement === send) input.focus();
  watchFocus();
  show("answering");
  say("Answering");
  // The answer is read out when it is whole, not piece by piece.
  messages.ariaBusy = "true";
  try {
    const options = { ...readSettings(), signal: controller.signal };
    const answer = current.facts.hasChatTemplate ? current.chat(text, options) : current.generate(text, options);
    await write(answer, body);
    await showFigures(current, answer.result);
    if (model !== current) return;
    say("Ready");
  } catch (error) {
    if (model !== current) return;
    const advice = error instanceof ContextLengthError ? ". New conversation makes room" : "";
    say(controller.signal.aborted ? "Stopped" : `Cannot answer: ${(error as Error).message}${advice}`);
    if (body.textContent === "") takeBack(text, [question.message, message]);
  } finally {
    messages.ariaBusy = "false";
  }
  show("ready");
  focusNext(input);
}

/** Whether a key belongs to an input method. Safari tells of the one that ends a composition by its code only. */
function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

find<HTMLFormElement>("load").addEventListener("submit", (event) => {
  event.preventDefault();
  void load(url.value);
});
file.addEventListener("change", () => {
  const chosen = file.files?.[0];
  // So that choosing the same file again is a change, too.
  file.value = "";
  if (chosen) void load(chosen);
});
find<HTMLFormElement>("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = input.value.trim();
  if (text === "" || send.disabled) return;
  input.value = "";
  void talk(text);
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
  event.preventDefault();
  find<HTMLFormElement>("compose").requestSubmit();
});
stop.addEventListener("click", () => running?.abort());
cancel.addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !isComposing(event)) running?.abort();
});
find<HTMLFormElement>("settings").addEventListener("submit", (event) => event.preventDefault());
reset.addEventListener("click", async () => {
  const current = model;
  try {
    await current?.reset();
  } catch (error) {
    if (model === current) say(`Cannot begin anew: ${(error as Error).message}`);
    return;
  }
  if (model !== current) return;
  messages.replaceChildren();
  say("New conversation");
  input.focus();
});

startShell(find<HTMLButtonElement>("theme"));
show("empty");
void load(url.value);
