/** What surrounds the chat: light and dark, the service worker. */

/** Starts both. A page that its host does not isolate is loaded again, once, when the service worker can do it. */
export function startShell(button: HTMLButtonElement): void {
  const stored = localStorage.getItem("theme");
  setTheme(button, stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => {
    const isDark = button.getAttribute("aria-pressed") !== "true";
    localStorage.setItem("theme", isDark ? "dark" : "light");
    setTheme(button, isDark);
  });
  if ("serviceWorker" in navigator) void startServiceWorker();
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
