/**
 * Keeps the page's files for use without a network, and sets the headers of cross-origin isolation, which threads need,
 * where the host does not. Programs are not its business: lowbit/web keeps those.
 */
const CACHE = "lowbit-page";
/** Names of the files, which the build writes in this place. */
const FILES = globalThis.PAGE_FILES;

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(FILES))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => event.waitUntil(removeOld().then(() => self.clients.claim())));

/** What earlier versions had and this one has not. */
async function removeOld() {
  const cache = await caches.open(CACHE);
  for (const request of await cache.keys()) if (!kept.has(request.url)) await cache.delete(request);
}

const kept = new Set(FILES.map((file) => new URL(file, self.registration.scope).href));

self.addEventListener("fetch", (event) => {
  const file = fileOf(event.request.url);
  if (event.request.method === "GET" && kept.has(file)) event.respondWith(answer(event.request, file));
});

/** The page has two addresses, and queries do not matter. */
function fileOf(address) {
  const { origin, pathname } = new URL(address);
  return origin + pathname.replace(/\/index\.html$/, "/");
}

/** How long the network may be silent where there is a kept file: bad ones give no errors. */
const SILENCE_MS = 3000;

function silence() {
  return new Promise((_, reject) => setTimeout(() => reject(new Error("the network is silent")), SILENCE_MS));
}

/** From the network, so that a new version is seen at once; without one, and from a server in trouble, from the cache. */
async function answer(request, file) {
  const cache = await caches.open(CACHE);
  const known = await cache.match(file);
  try {
    const response = await Promise.race([fetch(request), ...(known ? [silence()] : [])]);
    if (response.status >= 500 && known) return isolated(known);
    if (!response.ok) return response;
    await cache.put(file, response.clone()).catch((error) => {
      // Models fill the storage: what there is no room for is not kept, and an older one beside newer files would not do.
      if (error.name !== "QuotaExceededError") throw error;
    });
    return isolated(response);
  } catch (error) {
    if (!known) throw error;
    return isolated(known);
  }
}

function isolated(response) {
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
