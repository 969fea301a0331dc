/** What surrounds the chat: light and dark, the service worker. */
import { unlessBlocked } from "./dom.ts";

/** Starts both; a server's page has no worker, and ends one of another page at its address. A page that its host does not isolate is loaded again, once, when the service worker can do it. */
export function startShell(button: HTMLButtonElement, runsHere: boolean): void {
  const stored = unlessBlocked(() => localStorage.getItem("theme"));
  setTheme(button, stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => {
    const isDark = button.getAttribute("aria-pressed") !== "true";
    setTheme(button, isDark);
    unlessBlocked(() => localStorage.setItem("theme", isDark ? "dark" : "light"));
  });
  // Without one the page works where there is a network.
  if ("serviceWorker" in navigator) (runsHere ? startServiceWorker() : endServiceWorkers()).catch(() => {});
}

function setTheme(button: HTMLButtonElement, isDark: boolean): void {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  button.setAttribute("aria-pressed", `${isDark}`);
}

async function startServiceWorker(): Promise<void> {
  await navigator.serviceWorker.register("service-worker.js");
  await navigator.serviceWorker.ready;
  if (globalThis.crossOriginIsolated || sessionStorage.getItem("reloaded")) return;
  sessionStorage.setItem("reloaded", "true");
  location.reload();
}

async function endServiceWorkers(): Promise<void> {
  for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
}
