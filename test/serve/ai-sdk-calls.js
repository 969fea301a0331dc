/**
 * What programs do with the AI SDK, over the provider in this process. As a program of its own, with the path of a `.pte`
 * file as its argument, it does so with version 7, which wants a newer Node than the other tests.
 */
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { z } from "zod";
import { createLowbit } from "../../dist/ai-sdk/index.js";
import { loadProgram } from "../../dist/index.js";

const prompt = "What news from Rome?";
const man = z.object({ name: z.enum(["Brutus", "Cassius"]), isHonourable: z.boolean() });

/** What each test does. @type {Record<string, (sdk: typeof import("ai"), settings: any, llm: any) => Promise<void>>} */
export const calls = {
  async "streams the text that it gets whole, which is the library's"({ generateText, streamText }, settings, llm) {
    const whole = await generateText(settings);
    const options = { temperature: 0, maxTokens: settings.maxOutputTokens };
    const { message, usage } = await llm.chat([{ role: "user", content: prompt }], options).result;
    assert.equal(whole.text, message.content);
    assert.equal(whole.usage.inputTokens, usage.promptTokens);
    assert.equal(whole.usage.outputTokens, usage.completionTokens);
    assert.equal(whole.finishReason, "stop");
    assert.equal((await generateText({ ...settings, maxOutputTokens: 2 })).finishReason, "length");
    assert.deepEqual(whole.warnings ?? [], []);
    let text = "";
    const stream = streamText(settings);
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, usage.completionTokens);
    const long = { ...settings, prompt: prompt.repeat(20) };
    await generateText(long);
    const { inputTokens, inputTokenDetails } = (await generateText(long)).usage;
    assert.ok(inputTokenDetails.cacheReadTokens > inputTokens / 2);
    assert.equal(inputTokenDetails.cacheReadTokens + inputTokenDetails.noCacheTokens, inputTokens);
  },

  async "runs tools, and goes on with their results"({ generateText, stepCountIs, isStepCount, tool }, settings) {
    const asked = [];
    const execute = async ({ name }) => {
      asked.push(name);
      return `${name} will fall.`;
    };
    const oracle = tool({ description: "Asks.", inputSchema: man, execute });
    const { steps } = await generateText({
      ...{ ...settings, maxOutputTokens: 300, temperature: 1, seed: 1 },
      tools: { oracle },
      stopWhen: (stepCountIs ?? isStepCount)(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" }),
    });
    assert.equal(steps.length, 2);
    assert.equal(steps[0].finishReason, "tool-calls");
    assert.match(steps[0].toolResults[0].output, /^(Brutus|Cassius) will fall\.$/);
    assert.deepEqual(asked, [steps[0].toolCalls[0].input.name]);
    assert.ok(steps[1].usage.inputTokens > steps[0].usage.inputTokens);
  },

  async "streams calls of tools"({ streamText, tool }, settings) {
    const oracle = tool({ description: "Asks.", inputSchema: man });
    const fields = { ...settings, maxOutputTokens: 300, temperature: 1, tools: { oracle } };
    const { fullStream } = streamText({ ...fields, toolChoice: { type: "tool", toolName: "oracle" } });
    let written = "";
    let input;
    for await (const part of fullStream) {
      if (part.type === "tool-input-delta") written += part.delta ?? part.inputTextDelta;
      if (part.type === "tool-call") input = part.input;
    }
    assert.deepEqual(JSON.parse(written), input);
    assert.deepEqual(man.parse(input), input);
  },

  async "answers by a schema"({ generateObject, generateText, streamText, Output }, settings) {
    const fields = { ...settings, maxOutputTokens: 300, temperature: 1 };
    const output = Output.object({ schema: man });
    const whole = await generateText({ ...fields, output });
    assert.deepEqual(man.parse(whole.output), whole.output);
    const { partialOutputStream } = streamText({ ...fields, output });
    let last;
    for await (const part of partialOutputStream) last = part;
    assert.deepEqual(man.parse(last), last);
    const choice = await generateText({ ...fields, output: Output.choice({ options: ["war", "peace"] }) });
    assert.ok(["war", "peace"].includes(choice.output));
    const { object } = await generateObject({ ...fields, schema: man });
    assert.deepEqual(man.parse(object), object);
  },

  async "thinks apart from its answer, with a budget"({ generateText, streamText }, settings) {
    const providerOptions = { lowbit: { thinking: { budget: 6 } } };
    const fields = { ...settings, maxOutputTokens: 40, providerOptions };
    const { reasoningText, text, usage } = await generateText(fields);
    assert.ok(reasoningText.length > 0);
    assert.ok(!text.includes("think>"));
    assert.ok(usage.outputTokenDetails.reasoningTokens >= 6);
    let streamed = "";
    for await (const part of streamText(fields).fullStream) if (part.type === "reasoning-delta") streamed += part.text;
    assert.equal(streamed, reasoningText);
  },

  async "aborts, which ends the computation"({ generateText, streamText }, settings, llm) {
    const running = () => llm.program.sequenceStatistics.sequences;
    const before = running();
    const controller = new AbortController();
    // Letters alone: no end token and none of the model's stop strings come before the last token.
    const constraint = { kind: "regex", pattern: "[a-z]{2000}" };
    const endless = { ...settings, maxOutputTokens: 400, providerOptions: { lowbit: { constraint } } };
    const { fullStream } = streamText({ ...endless, abortSignal: controller.signal });
    let pieces = 0;
    let last;
    for await (const part of fullStream) {
      last = part.type;
      if (part.type === "text-delta" && ++pieces === 3) controller.abort();
    }
    assert.equal(last, "abort");
    for (let i = 0; running() > before && i < 100; i++) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(running(), before);
    const abortSignal = AbortSignal.timeout(10);
    await assert.rejects(generateText({ ...endless, abortSignal }), { name: "TimeoutError" });
  },

  async "embeds texts"({ embedMany }) {
    // A stand-in: the demo model generates.
    const embedding = {
      encode: (text) => [...text],
      embed: async (ids) => ids.map((one) => Float32Array.of(one.length)),
    };
    const provider = createLowbit({ models: { lengths: { name: "lengths", embedding } } });
    const { embeddings, usage } = await embedMany({ model: provider.embeddingModel("lengths"), values: ["a", "bcd"] });
    assert.deepEqual(embeddings, [[1], [3]]);
    assert.equal(usage.tokens, 4);
  },

  async "tells of settings without effect, and of errors"({ generateText, streamText }, settings) {
    const { warnings } = await generateText({ ...settings, providerOptions: { lowbit: { beams: 2 } } });
    assert.deepEqual(
      warnings.map(({ feature }) => feature),
      ["providerOptions.lowbit.beams"],
    );
    await assert.rejects(generateText({ ...settings, temperature: -1 }), /temperature/);
    const errors = [];
    const onError = ({ error }) => errors.push(error);
    await streamText({ ...settings, temperature: -1, onError }).consumeStream();
    assert.match(errors[0].message, /temperature/);
  },
};

/** A provider over a program, and what calls need of it. @param {string} path */
export async function openProgram(path) {
  const llm = await loadProgram(path);
  const provider = createLowbit({ models: { demo: llm } });
  const settings = { model: provider("demo"), prompt, maxRetries: 0, temperature: 0, maxOutputTokens: 12 };
  return { llm, settings };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  globalThis.AI_SDK_LOG_WARNINGS = false;
  const sdk = await import("ai-7");
  const { llm, settings } = await openProgram(process.argv[2]);
  for (const [name, call] of Object.entries(calls)) {
    try {
      await call(sdk, settings, llm);
      console.log(`passed: ${name}`);
    } catch (error) {
      console.log(`failed: ${name}: ${error.stack}`);
      process.exitCode = 1;
    }
  }
  await llm.dispose();
}
