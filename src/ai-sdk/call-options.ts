/** Converts the settings of an AI SDK call to the library's options, with a warning for each setting without effect. */
import type { LanguageModelV3CallOptions, SharedV3Warning } from "@ai-sdk/provider";
import { type ChatOptions, withOwnStops } from "../language/chat-options.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { Tool, ToolChoice } from "../text/chat-messages.ts";
import { canThink, hasChannels, templateVariables } from "../text/thinking.ts";

/** Names of the library's options that calls may give as `providerOptions.lowbit`. */
const OWN = [
  "thinking",
  "templateOptions",
  "constraint",
  "minP",
  "repetitionPenalty",
  "penaltyWindow",
  "logitBias",
  "suppressTokens",
  "stopTokens",
  "ignoreEos",
  "draft",
  "prediction",
] as const;

/** Fields of a call's `providerOptions.lowbit`: options of `llm.chat` that the AI SDK has no setting for. */
export type LowbitOptions = Pick<ChatOptions, (typeof OWN)[number]>;

/** Version 7 of the SDK has a setting, `reasoning`, that its specification v3 lacks, and passes it on. */
type CallOptions = LanguageModelV3CallOptions & { readonly reasoning?: string };

type ThinkingModel = Pick<LanguageModel, "template" | "stopStrings">;

/** The library's options for a call of a model, and warnings about settings without effect. */
export function chatOptionsOf(
  call: CallOptions,
  model: ThinkingModel,
): { chatOptions: ChatOptions; warnings: SharedV3Warning[] } {
  const warnings: SharedV3Warning[] = [];
  const unsupported = (feature: string, details?: string) =>
    warnings.push({ type: "unsupported", feature, ...(details !== undefined && { details }) });
  for (const feature of callerHeaders(call)) unsupported(feature, "models run in this process");
  const tools = (call.tools ?? []).flatMap((tool): Tool[] => {
    if (tool.type === "provider") {
      unsupported(`tool ${tool.id}`, "there are none that the provider runs");
      return [];
    }
    const { name, description, inputSchema, strict, inputExamples } = tool;
    if (inputExamples !== undefined) unsupported("inputExamples", `of tool ${name}: chat templates have none`);
    return [{ name, description, parameters: inputSchema, strict }];
  });
  const { own, unknown } = ownOptions<LowbitOptions>(call.providerOptions, OWN);
  for (const name of unknown) unsupported(name);
  const chatOptions: ChatOptions = {
    maxTokens: call.maxOutputTokens,
    temperature: call.temperature,
    topP: call.topP,
    topK: call.topK,
    presencePenalty: call.presencePenalty,
    frequencyPenalty: call.frequencyPenalty,
    seed: call.seed,
    stop: call.stopSequences,
    signal: call.abortSignal,
    tools,
    toolChoice: toolChoiceOf(call.toolChoice),
    constraint: constraintOf(call.responseFormat),
    ...thinkingOf(call.reasoning, model, warnings),
    ...own,
  };
  return { chatOptions: withOwnStops(model, chatOptions), warnings };
}

/** ["headers"] where the caller gave some, which have no effect; the SDK itself only adds its user agent. */
export function callerHeaders({ headers = {} }: Pick<CallOptions, "headers">): string[] {
  return Object.keys(headers).some((name) => name.toLowerCase() !== "user-agent") ? ["headers"] : [];
}

/** The `providerOptions.lowbit` of a call: options of known names, and paths of the others. */
export function ownOptions<Own>(
  given: CallOptions["providerOptions"],
  names: readonly (keyof Own & string)[],
): { own: Own; unknown: string[] } {
  const isOwn = ([name]: readonly [string, unknown]) => (names as readonly string[]).includes(name);
  const entries = Object.entries(given?.lowbit ?? {});
  return {
    own: Object.fromEntries(entries.filter(isOwn)) as Own,
    unknown: entries.filter((entry) => !isOwn(entry)).map(([name]) => `providerOptions.lowbit.${name}`),
  };
}

function toolChoiceOf(choice: CallOptions["toolChoice"]): ToolChoice | undefined {
  return choice?.type === "tool" ? { name: choice.toolName } : choice?.type;
}

function constraintOf(format: CallOptions["responseFormat"]): ChatOptions["constraint"] {
  if (format?.type !== "json") return undefined;
  return format.schema === undefined ? { kind: "json" } : { kind: "jsonSchema", schema: format.schema };
}

/** Efforts that most templates do not know, by the nearest that they do. */
const EFFORTS: Readonly<Record<string, string>> = { minimal: "low", xhigh: "high", max: "high" };

/** Thinking options for an effort of the SDK's version 7. */
function thinkingOf(effort: string | undefined, { template }: ThinkingModel, warnings: SharedV3Warning[]): ChatOptions {
  const source = template?.source ?? "";
  if (effort === undefined || effort === "provider-default") return {};
  if (effort === "none") return { thinking: false };
  if (hasChannels(source) || templateVariables(source).has("reasoning_effort"))
    return { templateOptions: { reasoning_effort: EFFORTS[effort] ?? effort } };
  if (canThink(source)) {
    const details = `the model thinks or does not, whatever the effort: ${effort} lets it`;
    warnings.push({ type: "compatibility", feature: "reasoning", details });
    return { thinking: true };
  }
  warnings.push({ type: "unsupported", feature: "reasoning", details: "the model's chat template has no thinking" });
  return {};
}
