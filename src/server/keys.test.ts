/** API keys: which headers carry them, and what is none. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { ApiKeys, parseKeys } from "./keys.ts";

const none = { authorization: undefined, apiKey: undefined };

describe("ApiKeys", () => {
  const keys = new ApiKeys(["sk-one", { key: "sk-two", manages: true }]);
  it("knows each key in either header, and tells them apart", () => {
    const owners = ["sk-one", "sk-two"].map((key) => {
      const owner = keys.ownerOf({ ...none, apiKey: key });
      expect(keys.ownerOf({ ...none, authorization: `Bearer ${key}` })).toEqual(owner);
      expect(keys.ownerOf({ ...none, authorization: `bearer  ${key}` })).toEqual(owner);
      expect(owner!.name).not.toContain(key);
      expect(owner!.manages).toBe(key === "sk-two");
      return owner!.name;
    });
    expect(new Set(owners).size).toBe(2);
  });

  it.each(["", "sk", "sk-one ", "sk-one\0", "SK-ONE", "sk-onesk-two", "sk-one,sk-two", "*"])("refuses %j", (key) => {
    expect(keys.ownerOf({ ...none, apiKey: key })).toBeNull();
    expect(keys.ownerOf({ ...none, authorization: `Basic ${key}` })).toBeNull();
    expect(keys.ownerOf(none)).toBeNull();
  });

  it("knows nobody apart without keys", () => {
    expect(new ApiKeys([]).ownerOf(none)).toEqual({ name: "", manages: null });
  });

  it("refuses keys that no header carries, without showing them", () => {
    for (const key of ["", "with space", "ü", "x".repeat(600)])
      expect(() => new ApiKeys([key])).toThrow(InvalidArgumentError);
    expect(() => new ApiKeys(["secret word"])).not.toThrow(/secret/);
  });

  it("are read a line each", () => {
    expect(parseKeys("# mine\nsk-a\r\n\n  sk-b  manage \n#sk-c\nmanage")).toEqual([
      { key: "sk-a", manages: false },
      { key: "sk-b", manages: true },
      { key: "manage", manages: false },
    ]);
  });
});
