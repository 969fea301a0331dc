/** The focus of readers who use keys: it goes on where they are when something has ended. */
import { find } from "./dom.ts";

/** Where the focus was when the load or the answer that runs began, and whether the reader has turned elsewhere since. */
let origin: HTMLElement = document.body;
let isElsewhere = false;

export function watchFocus(): HTMLElement {
  origin = document.activeElement as HTMLElement;
  isElsewhere = false;
  return origin;
}

for (const event of ["focusin", "input"])
  document.addEventListener(event, ({ target }) => {
    // Windows that come to the front focus again what had the focus.
    if (event === "focusin" && target === origin) return;
    isElsewhere = target !== find("cancel") && !find("compose").contains(target as Node);
  });

/** Whether the reader writes something there since it began. */
export function isBusyIn(element: HTMLElement): boolean {
  return isElsewhere && element.contains(document.activeElement);
}

/** When something has ended: the reader goes on here, unless he does already somewhere else. */
export function focusNext(element: HTMLElement): void {
  if (!isElsewhere) element.focus();
}
