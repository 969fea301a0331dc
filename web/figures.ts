/** The panel of figures: speed of the last answer, memory, threads, kernels. */
import type { GenerationResult, WebModel } from "lowbit/web";

/** Shows a model's figures; `result` is the last answer, if there was one. */
export async function showFigures(model: WebModel, result: GenerationResult | null): Promise<void> {
  const { threads, memory, features, kernels } = await model.stats();
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const rate = (tokens: number, seconds: number) =>
    tokens > 0 && seconds > 0 ? `${(tokens / seconds).toFixed(1)} tok/s` : "–";
  const rows: [string, string][] = [
    ["Generating", result ? rate(result.generatedTokens - 1, result.decodeSeconds) : "–"],
    ["Reading", result ? rate(result.promptTokens, result.prefillSeconds) : "–"],
    ["Weights", megabytes(memory.constants)],
    ["Conversation", megabytes(memory.state)],
    ["Scratch", megabytes(memory.scratch)],
    ["Threads", globalThis.crossOriginIsolated ? `${threads}` : "1 (page is not isolated)"],
    ["Features", features.replaceAll(",", ", ")],
  ];
  const slow = kernels.filter(([, used]) => used.some((name) => name.endsWith("_reference")));
  if (slow.length > 0) rows.push(["Slow: no fast kernel for", slow.map(([operator]) => operator).join(", ")]);
  const entries = rows.flatMap(([name, value]) => [element("dt", name), element("dd", value)]);
  document.getElementById("figures")!.replaceChildren(...entries);
  const names = new Set(kernels.flatMap(([, used]) => used));
  document.getElementById("kernels")!.replaceChildren(...[...names].sort().map((name) => element("li", name)));
}

function element(tag: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}
