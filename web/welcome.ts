/** What an empty conversation suggests, by what the model can do. */
import { button, element, find } from "./dom.ts";
import type { ChatModel } from "./engine.ts";

const ALWAYS = ["Explain how a hash table works, with an example.", "Plan a week of quick vegetarian dinners."];
const WITH_THINKING = "Three friends share 7 apples fairly. How? Think it through.";
const WITHOUT_THINKING = "Write a short poem about the sea in autumn.";
const WITH_TOOLS = "What is 17.5 % of 2,349, and which day is it today?";

export function showWelcome({ canThink, takesTools }: Pick<ChatModel, "canThink" | "takesTools">): void {
  const input = find<HTMLTextAreaElement>("input");
  const suggest = (text: string, prepare = () => {}) =>
    button(text, () => {
      prepare();
      input.value = text;
      input.dispatchEvent(new Event("input"));
      input.focus();
    });
  const useTools = () => {
    find<HTMLInputElement>("tools").checked = true;
  };
  const buttons = [
    ...ALWAYS.map((text) => suggest(text)),
    suggest(canThink ? WITH_THINKING : WITHOUT_THINKING),
    takesTools
      ? suggest(WITH_TOOLS, useTools)
      : button("Ask about a text file…", () => find<HTMLInputElement>("attach").click()),
  ];
  find("suggestions").replaceChildren(...buttons.map((made) => element("li", "", made)));
}
