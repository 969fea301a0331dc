import { describe, expect, it } from "vitest";
import { samplingDefaults, stopStrings, withDefaults } from "./generation-facts.ts";

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
    expect(samplingDefaults({ temperature: 0.6 })).toEqual({ temperature: 0 });
    expect(samplingDefaults({ do_sample: true, temperature: 0.6, top_p: 0.9, top_k: "x" })).toMatchObject({
      temperature: 0.6,
      topP: 0.9,
      topK: undefined,
    });
  });

  it("may hold one stop string or several", () => {
    expect(stopStrings({ stop_strings: "\n\n" })).toEqual(["\n\n"]);
    expect(stopStrings({ stop_strings: ["a", "", 3, "b"] })).toEqual(["a", "b"]);
    expect(stopStrings({})).toEqual([]);
  });
});
