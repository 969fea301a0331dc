/** Chooses how a model's answers are parsed, by what its chat template contains. */

import { hasChannels, thinkingTags } from "../thinking.ts";
import type { AnswerFormat } from "./answer-format.ts";
import type { CallFormat } from "./call-format.ts";
import { FUNCTION_GEMMA, GEMMA_4, gemma } from "./gemma.ts";
import { glm } from "./glm.ts";
import { harmony } from "./harmony.ts";
import { llama } from "./llama.ts";
import { readMarkedAnswer } from "./marked-answer.ts";
import { mistral } from "./mistral.ts";
import { pythonic } from "./pythonic.ts";
import { DEEPSEEK, KIMI, sectioned } from "./sectioned.ts";
import { taggedJson } from "./tagged-json.ts";
import { xmlParameters } from "./xml-parameters.ts";

/**
 * The answer format of a chat template; plain text for a template without markers. Calls are only parsed where there are tools.
 */
export function answerFormat(template: string, hasTools: boolean): AnswerFormat {
  if (hasChannels(template)) return harmony;
  const thinking = thinkingTags(template);
  const calls = hasTools ? callFormat(template) : null;
  return {
    specialTokens: [...(calls?.specialTokens ?? []), ...(thinking ? [thinking.begin, thinking.end] : [])],
    closeThinking: thinking?.close ?? "",
    beginThinking: thinking?.begin ?? "",
    callStarts: calls?.starts ?? [],
    callToken: calls ? callToken(calls) : "",
    callSteps: calls?.steps ?? [],
    read: (cursor, writer) => readMarkedAnswer(cursor, writer, { calls, thinking }),
  };
}

function callToken({ starts, steps: [first] }: CallFormat): string {
  return first?.kind === "text" ? (starts.find((start) => first.text.startsWith(start)) ?? first.text) : "";
}

/** Call formats by strings that chat templates contain, the most specific ones first. */
const FAMILIES: readonly (readonly [texts: readonly string[], format: (template: string) => CallFormat])[] = [
  [["<｜tool▁call▁begin｜>"], (template) => sectioned(DEEPSEEK, template.includes("```json"))],
  [["<|tool_calls_section_begin|>"], () => sectioned(KIMI)],
  [["<function=", "<parameter="], xmlParameters],
  [["<arg_key>"], () => glm],
  [["<start_function_call>"], () => gemma(FUNCTION_GEMMA)],
  [["<|tool_call>"], () => gemma(GEMMA_4)],
  [["[TOOL_CALLS]"], mistral],
  [["<|tool_call_start|>"], pythonic],
  [["List of tools: "], pythonic],
  [["<function_calls>"], pythonic],
  [["<tool_call>"], taggedJson],
  [["<|tool_call|>"], taggedJson],
  [["<TOOLCALL>"], taggedJson],
  [["<|START_ACTION|>"], taggedJson],
];

/** The call format of a template; bare JSON for a template that shows no marker, as Llama models write it. */
function callFormat(template: string): CallFormat {
  const found = FAMILIES.find(([texts]) => texts.every((text) => template.includes(text)));
  return found?.[1](template) ?? llama;
}
