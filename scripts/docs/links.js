/** Finds broken links in a site's pages: to missing files, or to missing anchors of a page. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";

/** The file of the site that an address names; null where there is none. @param {string} site @param {string} path */
function fileAt(site, path) {
  const file = join(site, path);
  const candidates = path.endsWith("/") ? [`${file}index.html`] : [file, `${file}.html`, join(file, "index.html")];
  return candidates.find((candidate) => existsSync(candidate) && statSync(candidate).isFile()) ?? null;
}

/**
 * One line for each broken link from a page to this site.
 * @param {string} site the folder @returns {string[]}
 */
export function linkProblems(site) {
  const pages = readdirSync(site, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".html"))
    .sort();
  const texts = new Map(pages.map((path) => [join(site, path), readFileSync(join(site, path), "utf8")]));
  const ids = new Map(
    [...texts].map(([file, text]) => [file, new Set([...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id))]),
  );
  const problems = new Set();
  for (const page of pages)
    for (const [, link] of texts.get(join(site, page)).matchAll(/<a [^>]*?href="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      const [path, anchor] = decodeURI(link.replaceAll("&amp;", "&")).split("#");
      const target = path === "" ? page : path.startsWith("/") ? path.slice(1) : join(dirname(page), path);
      const file = fileAt(site, target);
      if (file === null) problems.add(`${page}: ${link}: there is no such page`);
      else if (anchor && ids.has(file) && !ids.get(file).has(anchor))
        problems.add(`${page}: ${link}: the page has no such place`);
    }
  return [...problems];
}
