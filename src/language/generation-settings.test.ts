import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../errors.ts";
import { ignoredSettings, samplingDefaults, stopStrings, withDefaults } from "./generation-settings.ts";

describe("withDefaults", () => {
  it("keeps a default where an option is undefined", () => {
    const defaults = { temperature: 0.8, topK: 40 };
    expect(
      withDefaults<{ temperature?: number | undefined; topK?: number | undefined }>(defaults, {
        temperature: undefined,
        topK: 1,
      }),
    ).toEqual({ temperature: 0.8, topK: 1 });
  });
});

describe("generation_config.json", () => {
  it("is greedy unless it says to sample", () => {
    expect(samplingDefaults({ temperature: 0.6 }, "x.pte")).toEqual({ temperature: 0 });
    expect(samplingDefaults({ do_sample: true, temperature: 0.6, top_p: 0.9, top_k: null }, "x.pte")).toMatchObject({
      temperature: 0.6,
      topP: 0.9,
      topK: 50,
    });
  });

  it("penalizes repetition without sampling, too", () => {
    const settings = { temperature: 0.6, repetition_penalty: 1.1 };
    expect(samplingDefaults(settings, "x.pte")).toEqual({
      temperature: 0,
      repetitionPenalty: 1.1,
      penaltyWindow: Infinity,
    });
    expect(() => samplingDefaults({ repetition_penalty: -1 }, "x.pte")).toThrow(
      "repetition_penalty: expected a number",
    );
  });

  it("suppresses tokens, and tells what it does not obey", () => {
    const settings = {
      suppress_tokens: [5, 7],
      min_new_tokens: 3,
      no_repeat_ngram_size: 0,
      num_beams: 4,
      typical_p: 0.9,
    };
    expect(samplingDefaults(settings, "x.pte").suppressTokens).toEqual([5, 7]);
    expect(samplingDefaults({ do_sample: true, suppress_tokens: [] }, "x.pte").suppressTokens).toBeUndefined();
    expect(() => samplingDefaults({ suppress_tokens: ["a"] }, "x.pte")).toThrow(
      new InvalidFileError("x.pte", 'suppress_tokens: expected token ids but found "a"'),
    );
    expect(ignoredSettings(settings)).toEqual(["num_beams", "min_new_tokens"]);
    expect(ignoredSettings({ ...settings, do_sample: true })).toContain("typical_p");
    expect(
      ignoredSettings({ bad_words_ids: null, num_beams: 1, begin_suppress_tokens: [], max_new_tokens: 9 }),
    ).toEqual([]);
  });

  it("passes over suppressed tokens beyond the vocabulary, as transformers does", () => {
    const settings = { suppress_tokens: [5, 7, 50258], bad_words_ids: [[8], [6]] };
    expect(samplingDefaults(settings, "x.pte", 8).suppressTokens).toEqual([5, 7, 6]);
    expect(samplingDefaults({ suppress_tokens: [8] }, "x.pte", 8).suppressTokens).toBeUndefined();
  });

  it("bans bad words of one token but for end tokens, and tells of longer ones", () => {
    const settings = { bad_words_ids: [[3], [2], [4, 5]], eos_token_id: [2, 9], suppress_tokens: [3] };
    expect(samplingDefaults(settings, "x.pte").suppressTokens).toEqual([3]);
    expect(ignoredSettings(settings)).toEqual(["bad_words_ids"]);
    expect(ignoredSettings({ bad_words_ids: [[3], [2]] })).toEqual([]);
    expect(() => samplingDefaults({ bad_words_ids: [["a"]] }, "x.pte")).toThrow(
      new InvalidFileError("x.pte", 'bad_words_ids: expected token ids but found "a"'),
    );
  });

  it.each([
    [{ top_k: "x" }, 'top_k: expected a number from 0 to Infinity but found "x"'],
    [{ temperature: -1 }, `temperature: expected a number from 0 to ${Number.MAX_VALUE} but found -1`],
    [{ top_p: 2 }, "top_p: expected a number from 0 to 1 but found 2"],
  ])("names the file of sampling out of range: %j", (settings, problem) => {
    expect(() => samplingDefaults({ do_sample: true, ...settings }, "x.pte")).toThrow(
      new InvalidFileError("x.pte", problem),
    );
  });

  it("limits an answer by max_new_tokens, and tells that max_length is ignored without", () => {
    expect(samplingDefaults({ max_new_tokens: 5 }, "x.pte")).toEqual({ temperature: 0, maxTokens: 5 });
    expect(samplingDefaults({ max_new_tokens: null }, "x.pte")).toEqual({ temperature: 0 });
    expect(ignoredSettings({ max_new_tokens: 5, max_length: 64 })).toEqual([]);
    expect(ignoredSettings({ max_length: 64 })).toEqual(["max_length"]);
    expect(ignoredSettings({ max_length: 20, max_time: 3 })).toEqual(["max_time"]);
    for (const most of [0, -1, 2.5, 1e18, "5"])
      expect(() => samplingDefaults({ max_new_tokens: most }, "x.pte")).toThrow(
        new InvalidFileError(
          "x.pte",
          `max_new_tokens: expected a whole number from 1 but found ${JSON.stringify(most)}`,
        ),
      );
  });

  it("has ids of none, as transformers takes them", () => {
    const ids = [5, -1, 2 ** 32 - 1, 1e18, -(2 ** 40)];
    expect(samplingDefaults({ suppress_tokens: ids, bad_words_ids: [[4294967295], [6]] }, "x.pte")).toEqual({
      ...{ temperature: 0, suppressTokens: [5, 6] },
    });
  });

  it.each([1.5, "7", Number.POSITIVE_INFINITY, true])("has no token of id %j", (id) => {
    expect(() => samplingDefaults({ suppress_tokens: [id] }, "x.pte")).toThrow(/suppress_tokens: expected token ids/);
  });

  it("may hold one stop string or several", () => {
    expect(stopStrings({ stop_strings: "\n\n" })).toEqual(["\n\n"]);
    expect(stopStrings({ stop_strings: ["a", "", 3, "b"] })).toEqual(["a", "b"]);
    expect(stopStrings({})).toEqual([]);
  });
});
