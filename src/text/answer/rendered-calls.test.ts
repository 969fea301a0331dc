/** Calls as models' own chat templates render them, with any values, cut and split anywhere: the same calls, or unfinished ones. */
import { existsSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  callsIn,
  callsOf,
  expectBeginnings,
  hostile,
  parse,
  piecesOf,
  plain,
  tools,
} from "../../../test/support/parsed-calls.ts";
import type { WrittenCall } from "../../../test/support/written-calls.ts";
import type { Message } from "../chat-messages.ts";
import { ChatTemplate } from "../chat-template.ts";
import { templateInput } from "../template-input.ts";

const folder = new URL("../../../../shared/cases/chat-templates/templates/", import.meta.url);

/** Texts that are no values of a form without escapes: ends of values and what looks like them. */
const MARKERS = /<|\n/;
const templates: readonly (readonly [file: string, never?: RegExp])[] = [
  ["ByteDance-Seed-OSS.jinja", MARKERS],
  ["CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja"],
  ["GLM-4.7-Flash.jinja", MARKERS],
  ["GLM-5.2.jinja", MARKERS],
  ["LFM2-8B-A1B.jinja"],
  ["LFM2.5-Instruct.jinja"],
  ["Mistral-Small-3.2-24B-Instruct-2506.jinja"],
  ["NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", MARKERS],
  ["NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja"],
  ["Qwen-QwQ-32B.jinja"],
  ["Qwen-Qwen2.5-7B-Instruct.jinja"],
  ["Qwen-Qwen3-0.6B.jinja"],
  ["Qwen3-Coder.jinja", MARKERS],
  ["Reka-Edge.jinja"],
  ["StepFun3.5-Flash.jinja", MARKERS],
  ["google-gemma-4-31B-it.jinja", MARKERS],
  ["meetkai-functionary-medium-v3.1.jinja"],
  ["meta-llama-Llama-3.2-3B-Instruct.jinja"],
  ["mistralai-Ministral-3-14B-Reasoning-2512.jinja"],
  ["moonshotai-Kimi-K2.jinja"],
  ["ol_laguna_v8_chat_template.jinja2", MARKERS],
  ["unsloth-mistral-Devstral-Small-2507.jinja"],
];

const user: Message = { role: "user", content: "Do it." };
/** What templates tell models of tools is no part of calls, and some do not end over schemas with references. */
const told = tools.map(({ name }) => ({ name, parameters: { type: "object", properties: {} } }));

/** What a template writes for an answer of one call, behind the prompt that it writes for it. */
function rendered(template: ChatTemplate, { name, args }: WrittenCall): string {
  const render = (messages: readonly Message[], addGenerationPrompt: boolean) => {
    const { messages: shaped, options } = templateInput(template, messages, { tools: told });
    return template.render(shaped, { ...options, bosToken: "", eosToken: "", addGenerationPrompt });
  };
  const call = { id: "abcdefghi", name, arguments: JSON.stringify(args) };
  const prompt = render([user], true);
  const whole = render([user, { role: "assistant", content: null, toolCalls: [call] }], false);
  let same = 0;
  while (same < prompt.length && prompt[same] === whole[same]) same++;
  // Marks that begin alike are not the same.
  const marker = whole.lastIndexOf("<", same);
  return whole.slice(marker >= 0 && whole.indexOf(">", marker) >= same ? marker : same);
}

const places = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 5, maxLength: 5 });
const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });

describe.each(templates.map(([file, never]) => ({ file, never })))("a call by $file", ({ file, never }) => {
  const isHere = existsSync(new URL(file, folder));
  it.skipIf(!isHere)(
    `is the same split, and unfinished cut${isHere ? "" : " (skipped: ../shared is not here)"}`,
    () => {
      const source = readFileSync(new URL(file, folder), "utf8");
      const template = new ChatTemplate(source, file);
      const calls = callsOf(fc.oneof(plain, hostile), never).map(([call]) => call!);
      fc.assert(
        fc.property(calls, sizes, places, (call, sizes, places) => {
          const answer = rendered(template, call);
          const whole = parse(source, [answer]);
          expect(callsIn(whole)).toEqual([call]);
          expect(parse(source, piecesOf(answer, sizes))).toEqual(whole);
          expectBeginnings(source, answer, places, true);
        }),
        { numRuns: 15 },
      );
    },
  );
});
