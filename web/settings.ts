/** The settings of the form, for an answer. */
const names = ["temperature", "topK", "topP", "repetitionPenalty", "seed", "maxTokens"] as const;

/** How an answer is sampled; what is left out is the model's own. */
export type Settings = { [name in (typeof names)[number]]?: number };

/** What is filled in. An error for what is no number. */
export function readSettings(): Settings {
  const settings: Settings = {};
  for (const name of names) {
    const { value, validity } = document.getElementById(name) as HTMLInputElement;
    if (validity.badInput) throw new Error(`${name}: expected a number`);
    if (value.trim() !== "") settings[name] = Number(value);
  }
  return settings;
}

/** What is chosen beside sampling. */
export function readChoices(): { thinking: boolean | undefined; hasTools: boolean; servers: readonly string[] } {
  const thinking = document.getElementById("thinking") as HTMLSelectElement;
  const tools = document.getElementById("tools") as HTMLInputElement;
  const mcp = document.getElementById("mcp") as HTMLTextAreaElement;
  const isOff = !thinking.disabled && thinking.value === "off";
  const servers = mcp.disabled ? [] : (mcp.value.match(/\S+/g) ?? []);
  return { thinking: isOff ? false : undefined, hasTools: !tools.disabled && tools.checked, servers };
}
