/** API keys: which headers carry them, and what is none. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { ApiKeys, parseKeys } from "./keys.ts";

const none = { authorization: undefined, apiKey: undefined };

describe("ApiKeys", () => {
  const keys = new ApiKeys(["sk-one", "sk-two"]);
  it("admits each key in either header", () => {
    for (const key of ["sk-one", "sk-two"]) {
      expect(keys.admits({ ...none, authorization: `Bearer ${key}` })).toBe(true);
      expect(keys.admits({ ...none, authorization: `bearer  ${key}` })).toBe(true);
      expect(keys.admits({ ...none, apiKey: key })).toBe(true);
    }
  });

  it.each(["", "sk", "sk-one ", "sk-one\0", "SK-ONE", "sk-onesk-two", "sk-one,sk-two", "*"])("refuses %j", (key) => {
    expect(keys.admits({ ...none, apiKey: key })).toBe(false);
    expect(keys.admits({ ...none, authorization: `Basic ${key}` })).toBe(false);
    expect(keys.admits(none)).toBe(false);
  });

  it("admits everyone without keys", () => {
    expect(new ApiKeys([]).admits(none)).toBe(true);
  });

  it("refuses keys that no header carries, without showing them", () => {
    for (const key of ["", "with space", "ü", "x".repeat(600)])
      expect(() => new ApiKeys([key])).toThrow(InvalidArgumentError);
    expect(() => new ApiKeys(["secret word"])).not.toThrow(/secret/);
  });

  it("are read a line each", () => {
    expect(parseKeys("# mine\nsk-a\r\n\n  sk-b  \n#sk-c")).toEqual(["sk-a", "sk-b"]);
  });
});
