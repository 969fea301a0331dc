/** What surrounds the chat: light and dark, the service worker. */

/** Starts both. A page that its host does not isolate is loaded again, once, when the service worker can do it. */
export function startShell(button: HTMLButtonElement): void {
  const stored = unlessBlocked(() => localStorage.getItem("theme"));
  setTheme(button, stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => {
    const isDark = button.getAttribute("aria-pressed") !== "true";
    setTheme(button, isDark);
    unlessBlocked(() => localStorage.setItem("theme", isDark ? "dark" : "light"));
  });
  // Without one the page works where there is a network.
  if ("serviceWorker" in navigator) startServiceWorker().catch(() => {});
}

/** Browsers that are told to block cookies throw where a page asks for its storage. */
function unlessBlocked<R>(work: () => R): R | null {
  try {
    return work();
  } catch {
    return null;
  }
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
