/** /v1/completions: texts after plain prompts, with log probabilities. */

import { merge } from "../../language/merge.ts";
import { promptLogProbabilities } from "../../language/prompt-log-probabilities.ts";
import { fillInMiddle } from "../../text/fill-in-middle.ts";
import type { GenerationResult } from "../../text/generate.ts";
import type { LogProbabilities } from "../../text/log-probabilities.ts";
import { WHOLE_TEXT } from "../../text/tokenizer.ts";
import { constrained, structuredConstraint } from "../constraint.ts";
import { ApiError } from "../errors.ts";
import { newId, unixTime } from "../ids.ts";
import { samplingOptions } from "../sampling.ts";
import { type CompletionRequest, completionRequest, completionSchema } from "../schemas/completions.ts";
import type { Job, Serving } from "../serving.ts";
import type { StreamEvent } from "../sse.ts";
import { tokenText } from "../token-text.ts";
import { openaiUsage, sumOf } from "../usage.ts";
import { type App, addPost } from "./route.ts";

const MAX_TOKENS = 16;

export function addCompletions(app: App, serving: Serving): void {
  const route = {
    path: "/v1/completions",
    summary: "Continue a text.",
    request: completionRequest(serving.limits),
    response: completionSchema,
    streams: true,
  };
  addPost(app, route, async (c, body) => {
    checkCompletion(body, serving.limits.choices);
    const choices = promptsOf(body).length * (body.n ?? 1);
    const demand = { model: body.model, choices };
    const completion = new Completion(body);
    if (!body.stream) return serving.answer(c, demand, (job) => completion.whole(job));
    return serving.stream(c, demand, (job) => completion.events(job), { failed: (data) => [{ data }] });
  });
}

/** ApiError 400 for fields that exclude each other. */
function checkCompletion(body: CompletionRequest, choicesMax: number): void {
  const refuse = (param: string, message: string) => {
    throw new ApiError(400, `${param}: ${message}`, { param });
  };
  if (body.echo && body.stream && typeof body.logprobs === "number")
    refuse("stream", "expected false with echo and logprobs");
  if (body.echo && body.suffix) refuse("echo", "expected false with suffix");
  const choices = promptsOf(body).length * (body.n ?? 1);
  if (choices > choicesMax)
    refuse("n", `expected at most ${choicesMax} texts, n times the prompts, but found ${choices}`);
}

function promptsOf({ prompt }: CompletionRequest): readonly (string | readonly number[])[] {
  if (typeof prompt === "string") return [prompt];
  return typeof prompt[0] === "number" ? [prompt as number[]] : (prompt as (string | number[])[]);
}

/** A prompt as token ids. */
interface Prompt {
  readonly ids: readonly number[];
  /** Tokens that end its text, beside those of the request. */
  readonly stopTokens: readonly number[];
  readonly text: (job: Job) => string;
}

/** A piece of text of one choice, and the log probabilities of the token that completed it. */
interface Piece {
  readonly index: number;
  readonly text: string;
  readonly logprobs: LogProbabilities | null;
}

/** One request, whose pieces are joined or streamed. */
class Completion {
  readonly #body: CompletionRequest;
  readonly #id = newId("cmpl");
  readonly #created = unixTime();
  readonly #results: GenerationResult[] = [];

  constructor(body: CompletionRequest) {
    this.#body = body;
  }

  async whole(job: Job): Promise<object> {
    const { model } = this.#body;
    const prompts = await this.#encode(job);
    const choices = new Map<number, { text: string; logprobs: LogProbabilities[] }>();
    const n = this.#body.n ?? 1;
    prompts.forEach((_, i) => {
      for (let choice = 0; choice < n; choice++) choices.set(i * n + choice, { text: "", logprobs: [] });
    });
    const echoed = await this.#echoed(job, prompts);
    for await (const { index, text, logprobs } of this.#pieces(job, prompts)) {
      const choice = choices.get(index)!;
      choice.text += text;
      if (logprobs) choice.logprobs.push(logprobs);
    }
    const answers = Array.from(choices, ([index, { text, logprobs }]) => {
      const prompt = prompts[Math.floor(index / n)]!;
      const before = this.#body.echo ? { ids: prompt.ids, logprobs: echoed[Math.floor(index / n)]! } : null;
      return {
        index,
        text: (this.#body.echo ? prompt.text(job) : "") + text,
        logprobs: this.#hasLogprobs ? new LogprobLists(job, prompt.ids, before).list(logprobs) : null,
        finish_reason: this.#results[index]!.finishReason,
      };
    });
    const usage = openaiUsage(this.#counts(job, prompts));
    return { id: this.#id, object: "text_completion", created: this.#created, model, choices: answers, usage };
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const { model, echo, stream_options } = this.#body;
    const n = this.#body.n ?? 1;
    const prompts = await this.#encode(job);
    const lists = new Map<number, LogprobLists>();
    const chunk = (choices: readonly object[], usage?: object) => {
      const head = { id: this.#id, object: "text_completion", created: this.#created, model, choices };
      const withUsage = stream_options?.include_usage ? { ...head, usage: usage ?? null } : head;
      return { data: withUsage };
    };
    const choiceOf = (index: number, text: string, logprobs: object | null, reason: string | null) =>
      chunk([{ index, text, logprobs, finish_reason: reason }]);
    if (echo)
      for (let index = 0; index < n * prompts.length; index++)
        yield choiceOf(index, prompts[Math.floor(index / n)]!.text(job), null, null);
    const ended: StreamEvent[] = [];
    const onEnd = (index: number, { finishReason }: GenerationResult) => {
      ended.push(choiceOf(index, "", null, finishReason));
    };
    for await (const { index, text, logprobs } of this.#pieces(job, prompts, onEnd)) {
      yield* ended.splice(0);
      const list = lists.get(index) ?? new LogprobLists(job, prompts[Math.floor(index / n)]!.ids, null);
      lists.set(index, list);
      yield choiceOf(index, text, logprobs && list.list([logprobs]), null);
    }
    yield* ended;
    const usage = openaiUsage(this.#counts(job, prompts));
    if (stream_options?.include_usage) yield chunk([], usage);
    yield { data: "[DONE]" };
  }

  get #hasLogprobs(): boolean {
    return typeof this.#body.logprobs === "number";
  }

  async #encode({ model, contextLength }: Job): Promise<Prompt[]> {
    const { suffix, add_special_tokens } = this.#body;
    const addSpecialTokens = add_special_tokens ?? true;
    const { tokenizer } = model;
    return promptsOf(this.#body).map((prompt) => {
      if (suffix) {
        const filled = fillInMiddle(tokenizer, prompt, suffix, { addBos: addSpecialTokens });
        if (filled) return { ...filled, text: () => "" };
        throw new ApiError(400, "suffix: expected none: the model has no tokens for texts between others", {
          param: "suffix",
        });
      }
      const ids =
        typeof prompt === "string"
          ? tokenizer.encode(prompt, { ...WHOLE_TEXT, addSpecialTokens, contextLength })
          : prompt;
      const text = (job: Job) => (typeof prompt === "string" ? prompt : job.model.tokenizer.decode(ids));
      return { ids, stopTokens: [], text };
    });
  }

  /** Log probabilities of each prompt's tokens, where `echo` and `logprobs` ask for them. */
  async #echoed({ model, prefixScope, signal }: Job, prompts: readonly { readonly ids: readonly number[] }[]) {
    const { echo, logprobs } = this.#body;
    if (!echo || typeof logprobs !== "number") return prompts.map(() => []);
    return Promise.all(
      prompts.map(({ ids }) => promptLogProbabilities(model, ids, { top: logprobs, prefixScope, signal })),
    );
  }

  /** Pieces of all prompts and choices, as they come. `onEnd` is called as each choice ends; `#results` keeps how. */
  async *#pieces(
    job: Job,
    prompts: readonly Prompt[],
    onEnd: (index: number, result: GenerationResult) => void = () => {},
  ): AsyncGenerator<Piece> {
    const { max_tokens, logprobs } = this.#body;
    const n = this.#body.n ?? 1;
    const options = {
      ...samplingOptions(this.#body),
      ...constrained(structuredConstraint(this.#body.structured_outputs)),
      maxTokens: max_tokens ?? MAX_TOKENS,
      logprobs: logprobs ?? undefined,
      prefixScope: job.prefixScope,
      signal: job.signal,
      n,
    };
    const results = this.#results;
    async function* ofPrompt({ ids, stopTokens }: Prompt, first: number): AsyncGenerator<Piece> {
      const stream = job.model.generateChoices(ids, {
        ...options,
        stopTokens: [...(options.stopTokens ?? []), ...stopTokens],
        onEnd(choice, result) {
          results[first + choice] = result;
          onEnd(first + choice, result);
        },
      });
      for await (const { choice, ...piece } of stream) {
        job.wrote();
        yield { index: first + choice, ...piece };
      }
    }
    yield* merge(prompts.map((prompt, i) => ofPrompt(prompt, i * n)));
  }

  #counts(job: Job, prompts: readonly { readonly ids: readonly number[] }[]) {
    const n = this.#body.n ?? 1;
    const counts = {
      promptTokens: sumOf(prompts.map(({ ids }) => ids.length)),
      cachedTokens: sumOf(prompts.map((_, i) => this.#results[i * n]?.cachedTokens ?? 0)),
      generatedTokens: sumOf(this.#results.map(({ generatedTokens }) => generatedTokens)),
      draftedTokens: sumOf(this.#results.map(({ draftedTokens }) => draftedTokens)),
      acceptedTokens: sumOf(this.#results.map(({ acceptedTokens }) => acceptedTokens)),
    };
    job.took(counts);
    return counts;
  }
}

/** The parallel lists of OpenAI's `logprobs`, which are continued from token to token. */
class LogprobLists {
  readonly #job: Job;
  readonly #echoed: { readonly ids: readonly number[]; readonly logprobs: readonly LogProbabilities[] } | null;
  #last: number | undefined;
  #offset = 0;

  /** `echoed`: the prompt, when the lists begin with its tokens. */
  constructor(
    job: Job,
    promptIds: readonly number[],
    echoed: { readonly ids: readonly number[]; readonly logprobs: readonly LogProbabilities[] } | null,
  ) {
    this.#job = job;
    this.#echoed = echoed;
    this.#last = promptIds.at(-1);
  }

  list(generated: readonly LogProbabilities[]): object {
    const lists = {
      tokens: [] as string[],
      token_logprobs: [] as (number | null)[],
      top_logprobs: [] as (Record<string, number> | null)[],
      text_offset: [] as number[],
    };
    const add = (id: number, found: LogProbabilities | null) => {
      const text = this.#text(id);
      lists.tokens.push(text);
      lists.token_logprobs.push(found?.logprob ?? null);
      lists.top_logprobs.push(found && this.#topOf(found));
      lists.text_offset.push(this.#offset);
      this.#offset += text.length;
      this.#last = id;
    };
    if (this.#echoed) {
      this.#last = undefined;
      this.#echoed.ids.forEach((id, i) => {
        add(id, i === 0 ? null : this.#echoed!.logprobs[i - 1]!);
      });
    }
    for (const found of generated) add(found.id, found);
    return lists;
  }

  #text(id: number): string {
    return tokenText(this.#job.model.tokenizer, id, this.#last);
  }

  #topOf({ top }: LogProbabilities): Record<string, number> {
    return Object.fromEntries(top.map(({ id, logprob }) => [this.#text(id), logprob]));
  }
}
