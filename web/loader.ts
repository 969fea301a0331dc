/** Models: offered, loaded, put in the place of others. */
import { element, find, say, unlessBlocked } from "./dom.ts";
import type { Engine, Offer } from "./engine.ts";
import { focusNext, isBusyIn, watchFocus } from "./focus.ts";
import { page, show, showStart } from "./state.ts";

const url = find<HTMLInputElement>("url");
const progress = find<HTMLProgressElement>("progress");

/** The model of the last visit. */
const LAST = "lowbit-model";

/** Whether this page's device computes, and not the server that it comes from. */
export const runsHere = document.documentElement.dataset.engine !== "server";

let engine: Promise<Engine> | null = null;

function theEngine(): Promise<Engine> {
  const module = runsHere ? () => import("./browser-engine.ts") : () => import("./server-engine.ts");
  engine ??= module().then(({ engine }) => engine);
  return engine;
}

/** How far a file is; `total` is 0 where it is not known. */
function showProgress(done: number, total: number): void {
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  if (total > 0) progress.value = done / total;
  else progress.removeAttribute("value");
  find("amount").textContent = done > 0 ? `${megabytes(done)}${total > 0 ? ` of ${megabytes(total)}` : ""} MB` : "";
}

/** Puts another model in the place of the one there is. */
export async function load(source: string | File): Promise<void> {
  page.running?.abort();
  const controller = new AbortController();
  page.running = controller;
  const origin = watchFocus();
  page.model?.dispose();
  page.model = null;
  show("loading");
  showProgress(0, 0);
  const name = typeof source === "string" ? source : source.name;
  say(`Loading ${name}`);
  try {
    const { signal } = controller;
    const loaded = await (await theEngine()).load(source, { signal, onProgress: showProgress });
    if (page.running !== controller) {
      loaded.dispose();
      return;
    }
    page.model = loaded;
    unlessBlocked(() =>
      typeof source === "string" ? localStorage.setItem(LAST, source) : localStorage.removeItem(LAST),
    );
    find("model-name").textContent = loaded.name;
    // What the model has not got cannot be asked for.
    find<HTMLInputElement>("tools").disabled = loaded.takesTools === false;
    find<HTMLTextAreaElement>("mcp").disabled = loaded.takesTools === false;
    find<HTMLSelectElement>("thinking").disabled = loaded.canThink === false;
    (await import("./welcome.ts")).showWelcome(loaded);
    say(`Ready: ${loaded.name}${loaded.notice}`);
    if (!isBusyIn(find("start"))) showStart(false);
    show("ready");
    document.dispatchEvent(new Event("answered"));
    focusNext(find("input"));
  } catch (error) {
    if (page.running !== controller) return;
    say(controller.signal.aborted ? "Loading was cancelled" : `Cannot load: ${(error as Error).message}`);
    find("model-name").textContent = "Choose a model";
    showStart(true);
    show("empty");
    // The button that began it could not keep the focus.
    focusNext(controller.signal.aborted ? url : origin);
  }
}

/** The start screen's models; where there is one to begin with, it is loaded. */
export async function begin(): Promise<void> {
  const last = unlessBlocked(() => localStorage.getItem(LAST));
  // What is kept of it is there before any list.
  if (last !== null && runsHere) void load(last);
  else say("Choose a model");
  try {
    const offers = await (await theEngine()).offers();
    await showOffers(offers);
    if (runsHere || page.running) return;
    const known = offers.find(({ address }) => address === last) ?? (offers.length === 1 ? offers[0] : undefined);
    if (known) await load(known.address);
  } catch (error) {
    find("offers").replaceChildren(element("li", "", `The models cannot be listed: ${(error as Error).message}`));
  }
}

async function showOffers(offers: readonly Offer[]): Promise<void> {
  const start = await import("./start.ts");
  if (offers[0] && url.value === "") url.value = offers[0].address;
  await start.showOffers(offers, runsHere, ({ address }) => void load(address));
}
