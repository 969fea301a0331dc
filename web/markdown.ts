/** Answers as Markdown. What a model writes may be hostile: no script, no form and no address of others gets into the page. */
import DOMPurify from "dompurify";
import { Lexer, Parser, Renderer, type Token } from "marked";
import { copyText } from "./clipboard.ts";

const LEXING = { gfm: true, breaks: true };

/** What answers are made of; images, which tell others that they are read, are not among it. */
const ALLOWED = {
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a"],
    ...["h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
  ],
  ALLOWED_ATTR: ["href", "title", "align", "start", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

class AnswerRenderer extends Renderer {
  /** Tags are shown as they are written. */
  override html({ text }: { text: string }): string {
    return escaped(text);
  }

  /** A link, which loads nothing until it is followed. */
  override image({ href, text }: { href: string; text: string }): string {
    return `<a href="${escaped(href)}">${escaped(text || href)}</a>`;
  }

  /** Below the headings of the page. */
  override heading({ tokens, depth }: { tokens: Token[]; depth: number }): string {
    const level = Math.min(6, depth + 2);
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
  }

  /** With the line's end in its text, too. */
  override br(): string {
    return "<br>\n";
  }

  override checkbox({ checked }: { checked: boolean }): string {
    return checked ? "☑ " : "☐ ";
  }
}

const renderer = new AnswerRenderer();

interface Block {
  readonly raw: string;
  readonly nodes: readonly ChildNode[];
}

/** What is shown of each answer; blocks that stay the same stay in the page, and so does what is selected in them. */
const shown = new WeakMap<HTMLElement, readonly Block[]>();

/** Shows a text that may go on. */
export function renderMarkdown(target: HTMLElement, text: string): void {
  const tokens = new Lexer(LEXING).lex(text);
  const before = shown.get(target) ?? [];
  let same = 0;
  // Addresses that stand below change links above.
  if (Object.keys(tokens.links).length === 0)
    while (same < before.length && before[same]!.raw === tokens[same]?.raw) same++;
  if (same === 0) target.replaceChildren();
  for (const { nodes } of before.slice(same)) for (const node of nodes) node.remove();
  const added = tokens.slice(same).map((token): Block => {
    const nodes = nodesOf(token);
    target.append(...nodes);
    return { raw: token.raw, nodes };
  });
  shown.set(target, [...before.slice(0, same), ...added]);
}

function nodesOf(token: Token): ChildNode[] {
  const fragment = DOMPurify.sanitize(new Parser({ ...LEXING, renderer }).parse([token]), ALLOWED);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const table of fragment.querySelectorAll("table")) table.tabIndex = 0;
  for (const code of fragment.querySelectorAll("pre")) code.replaceWith(codeBlock(code));
  return [...fragment.childNodes];
}

/** Code with its language and a button that copies it. */
function codeBlock(pre: HTMLPreElement): HTMLElement {
  const block = document.createElement("div");
  block.className = "code";
  const head = document.createElement("div");
  const language = document.createElement("span");
  const inner = pre.querySelector("code");
  language.textContent = /^language-([\w+#.-]+)$/.exec(inner?.className ?? "")?.[1] ?? "";
  inner?.removeAttribute("class");
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.ariaLabel = "Copy code";
  copy.onclick = async () => {
    copy.textContent = (await copyText(pre.textContent.replace(/\n$/, ""))) ? "Copied" : "Cannot copy";
  };
  head.append(language, copy);
  // Long lines are scrolled by keys, too.
  const scrolled = pre.cloneNode(true) as HTMLPreElement;
  scrolled.tabIndex = 0;
  block.append(head, scrolled);
  return block;
}
