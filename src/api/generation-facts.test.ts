import { describe, expect, it } from "vitest";
import type { Checkpoint } from "../formats/contract.ts";
import { generationFacts } from "./generation-facts.ts";

describe("generationFacts", () => {
  const checkpoint = (config: object, settings: object | null) =>
    ({
      folder: "m",
      configFile: "m/config.json",
      config,
      generationConfig: settings && { text: "", value: settings },
    }) as unknown as Checkpoint;

  it("takes ids from generation_config.json, else from config.json, and negative ones for none", () => {
    const config = { bos_token_id: 1, eos_token_id: 2 };
    expect(generationFacts(checkpoint(config, { eos_token_id: [7, 8] }))).toEqual({ bosId: 1, eosIds: [7, 8] });
    expect(generationFacts(checkpoint(config, { eos_token_id: null }))).toEqual({ bosId: 1, eosIds: [2] });
    expect(generationFacts(checkpoint({ bos_token_id: -1 }, null))).toEqual({ bosId: null, eosIds: [] });
  });

  it("names the file of ids that are no whole numbers", () => {
    expect(() => generationFacts(checkpoint({ eos_token_id: "2" }, {}))).toThrow(
      'm/config.json: eos_token_id: expected token ids but found "2"',
    );
    expect(() => generationFacts(checkpoint({}, { bos_token_id: [1.5] }))).toThrow(
      "m/generation_config.json: bos_token_id: expected token ids but found 1.5",
    );
  });
});
