/** Elements of the page. */

export const find = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;

/** A new element with a text or children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** A button that does something; `label` is read out where its text alone does not say of what. */
export function button(text: string, work: () => unknown, label = ""): HTMLButtonElement {
  const made = element("button", "", text);
  made.type = "button";
  if (label) made.ariaLabel = label;
  made.onclick = work;
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** One of the page's icons, to stand before the text of a button. */
export function icon(name: string): SVGElement {
  const shown = document.createElementNS(SVG, "svg");
  shown.classList.add("icon");
  shown.ariaHidden = "true";
  shown.append(document.createElementNS(SVG, "use"));
  shown.firstElementChild!.setAttribute("href", `#icon-${name}`);
  return shown;
}

/** To those who listen, too, so what changes all the time is not said here. */
export function say(text: string): void {
  find("status").textContent = text;
}

/** Browsers that are told to block cookies throw where a page asks for its storage. */
export function unlessBlocked<R>(work: () => R): R | null {
  try {
    return work();
  } catch {
    return null;
  }
}
