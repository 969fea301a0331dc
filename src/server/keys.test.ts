/** API keys: which headers carry them, and what is none. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { ApiKeys, parseKeys } from "./keys.ts";

const none = { authorization: undefined, apiKey: undefined };

describe("ApiKeys", () => {
  const keys = new ApiKeys(["sk-one", "sk-two"]);
  it("knows each key in either header, and tells them apart", () => {
    const owners = ["sk-one", "sk-two"].map((key) => {
      const owner = keys.ownerOf({ ...none, apiKey: key });
      expect(keys.ownerOf({ ...none, authorization: `Bearer ${key}` })).toBe(owner);
      expect(keys.ownerOf({ ...none, authorization: `bearer  ${key}` })).toBe(owner);
      expect(owner).not.toContain(key);
      return owner;
    });
    expect(new Set(owners).size).toBe(2);
  });

  it.each(["", "sk", "sk-one ", "sk-one\0", "SK-ONE", "sk-onesk-two", "sk-one,sk-two", "*"])("refuses %j", (key) => {
    expect(keys.ownerOf({ ...none, apiKey: key })).toBeNull();
    expect(keys.ownerOf({ ...none, authorization: `Basic ${key}` })).toBeNull();
    expect(keys.ownerOf(none)).toBeNull();
  });

  it("knows nobody apart without keys", () => {
    expect(new ApiKeys([]).ownerOf(none)).toBe("");
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
