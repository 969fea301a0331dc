/** The panel's figures: memory, threads, kernels. */
import { element, find } from "./dom.ts";
import type { ChatModel } from "./engine.ts";

/** Shows how a model runs. */
export async function showFigures(model: ChatModel): Promise<void> {
  const { rows, kernels } = await model.report();
  find("figures").replaceChildren(
    ...rows.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]),
  );
  find("kernels").replaceChildren(...kernels.map((name) => element("li", "", name)));
  find("kernels-title").parentElement!.hidden = kernels.length === 0;
}
