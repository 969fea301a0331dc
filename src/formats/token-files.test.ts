/** Older files of tokens, against transformers 5.24 on the same folders. */
import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../errors.ts";
import { jsonFile } from "./json.ts";
import { withOlderFiles } from "./token-files.ts";

const file = (value: object | null) => value && jsonFile("x", JSON.stringify(value));
const merged = (config: object | null, added: object | null, map: object | null, tokenizer: object = {}) =>
  withOlderFiles("folder", {
    tokenizerJson: file(tokenizer),
    tokenizerConfig: file(config),
    addedTokens: file(added),
    specialTokensMap: file(map),
  })?.value;
const flags = { lstrip: false, rstrip: false, single_word: false };

describe("added_tokens.json and special_tokens_map.json", () => {
  it("add tokens that tokenizer.json has not, special where they are named", () => {
    const tokenizer = { added_tokens: [{ id: 3, content: "<known>" }] };
    const map = { eos_token: { content: "<end>" }, additional_special_tokens: ["<tool>"] };
    const added = { "<known>": 3, "<end>": 1101, "<tool>": 1102, "<plain>": 1100 };
    expect(merged({ eos_token: "<old>", bos_token: "<s>" }, added, map, tokenizer)).toEqual({
      ...{ bos_token: "<s>", ...map },
      added_tokens_decoder: {
        1100: { content: "<plain>", ...flags, normalized: true, special: false },
        1101: { content: "<end>", ...flags, normalized: false, special: true },
        1102: { content: "<tool>", ...flags, normalized: false, special: true },
      },
    });
  });

  it("count for nothing beside added_tokens_decoder, and need no tokenizer_config.json", () => {
    const config = { added_tokens_decoder: {} };
    expect(merged(config, { "<x>": 5 }, { eos_token: "<x>" })).toEqual(config);
    expect(merged(null, null, { eos_token: "<x>" })).toEqual({ eos_token: "<x>" });
    expect(merged(null, null, null)).toBeUndefined();
  });

  it.each([[{ "<x>": -1 }], [{ "<x>": "5" }], [{ "<x>": 5, "<y>": 5 }]])("%j is refused", (added) => {
    expect(() => merged(null, added, null)).toThrow(InvalidFileError);
    expect(() => merged(null, added, null)).toThrow(/folder\/added_tokens.json: token/);
  });
});
