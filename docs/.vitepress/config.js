/** The site of docs/: README.md is its first page, and its side bar is made of the lists in docs/index.md and CONTRIBUTING.md. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const root = fileURLToPath(new URL("../..", import.meta.url));
const isPage = (/** @type {string} */ path) =>
  path.endsWith(".md") && !/^(src|test|native|scripts|web|build)\//.test(path);

/** The links of a page's lists, section by section. @param {string} page a path from the root */
function sections(page) {
  const text = readFileSync(join(root, page), "utf8");
  return text
    .split(/^## /m)
    .slice(1)
    .map((section) => ({
      text: section.slice(0, section.indexOf("\n")),
      items: [...section.matchAll(/^\|.*\|$/gm)].flatMap(([row]) =>
        [...row.matchAll(/\[([^\]]+)\]\(([^)#]+\.md)\)/g)]
          .map(([, title, link]) => ({ text: title, path: posix.join(dirname(page), link) }))
          .filter(({ path }) => isPage(path))
          .map(({ text, path }) => ({ text, link: `/${path.replace(/(README|index)?\.md$/, "")}` })),
      ),
    }))
    .filter(({ items }) => items.length > 0);
}

const guides = sections("docs/index.md");
const contributing = sections("CONTRIBUTING.md").map((section) => ({
  ...section,
  text: "Change lowbit",
  collapsed: true,
}));

/** Pages of the reference, which typedoc lists. */
function reference() {
  const file = join(root, "docs", "reference", "typedoc-sidebar.json");
  const items = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : [];
  return [{ text: "Reference", link: "/docs/reference/", items }];
}

/** Links to pages have the site's names, and links to files that are no pages of it become plain text. @param {import("markdown-it")} markdown */
function siteLinks(markdown) {
  markdown.core.ruler.push("file-links", ({ tokens, env }) => {
    for (const { children } of tokens.filter(({ type }) => type === "inline")) {
      const opened = [];
      for (const token of children) {
        if (token.type === "link_open") {
          const [href] = (token.attrGet("href") ?? "").split("#");
          const isLocal = href !== "" && !/^[a-z]+:/.test(href);
          const path = posix.join(dirname(env.relativePath), href);
          const leads = !isLocal || isPage(path) || href.endsWith(".html");
          // The site's name of such a page.
          if (leads && isLocal) token.attrSet("href", token.attrGet("href").replace(/README\.md(?=#|$)/, "index.md"));
          opened.push(leads);
        }
        const leads = token.type === "link_close" ? opened.pop() : opened.at(-1);
        if (!leads && /^link_(open|close)$/.test(token.type)) token.hidden = true;
        if (token.hidden) Object.assign(token, { type: "text", tag: "", content: "", nesting: 0 });
      }
    }
  });
}

export default defineConfig({
  title: "lowbit",
  description: "Large language models on ordinary CPUs, in Node and in web pages",
  srcDir: "..",
  srcExclude: ["{src,test,native,scripts,web,build,dist,.changeset}/**", "**/node_modules/**"],
  rewrites: (id) => id.replace(/README\.md$/, "index.md"),
  outDir: "../build/docs",
  cacheDir: "../build/vitepress",
  base: "/",
  cleanUrls: false,
  lastUpdated: false,
  head: [["link", { rel: "icon", href: "/icon.svg", type: "image/svg+xml" }]],
  markdown: { config: siteLinks },
  themeConfig: {
    logo: "/icon.svg",
    outline: [2, 3],
    search: { provider: "local" },
    nav: [
      { text: "Getting started", link: "/docs/getting-started" },
      { text: "Guides", link: "/docs/" },
      { text: "Examples", link: "/examples/" },
      { text: "Reference", link: "/docs/reference/" },
    ],
    sidebar: { "/docs/reference/": reference(), "/": [...guides, ...contributing] },
  },
});
