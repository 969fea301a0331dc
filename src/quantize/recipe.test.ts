import { describe, expect, it } from "vitest";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { embedding, int8DynamicActivationIntxWeight, intxWeightOnly } from "./config.ts";
import { makeRecipe, parseRecipe, selectConfig } from "./recipe.ts";

const [two, three, four, five, six] = [2, 3, 4, 5, 6].map((bits) => intxWeightOnly({ bits }));

describe("selectConfig", () => {
  const recipe = makeRecipe([
    ["_default", two!],
    ["re:.*mlp", three!],
    ["re:layers\\.1\\..*\\.weight", four!],
    ["re:layers.*", null],
    ["layers.0.mlp", five!],
    ["layers.0.mlp.weight", six!],
    ["lm_head", null],
  ]);

  it.each([
    ["layers.0.mlp", "weight", six], // parameter before module
    ["layers.0.mlp", "scale", five], // module before pattern
    ["layers.1.mlp", "weight", four], // pattern of the parameter before the earlier one of the module
    ["decoder.2.mlp", "weight", three], // pattern of the module before _default
    ["layers.3.attention", "weight", null], // null ends the search
    ["lm_head", "weight", null],
    ["lm_heads", "weight", two],
    ["layer", "weight", two],
    ["mlp.down", "weight", two], // the pattern must match the whole name
    ["", "weight", two],
  ])("%s . %s", (moduleName, parameterName, expected) => {
    expect(selectConfig(recipe, moduleName, parameterName)).toBe(expected);
  });

  it("takes the parameter `weight` for granted, and null where nothing matches", () => {
    expect(selectConfig(recipe, "layers.0.mlp")).toBe(six);
    expect(selectConfig(makeRecipe([["a|b", two!]]), "a")).toBeNull();
  });

  it("matches the alternatives of a pattern whole", () => {
    const alternatives = makeRecipe([["re:q|k", two!]]);
    expect(["q", "k", "qk", "kx"].map((name) => selectConfig(alternatives, name))).toEqual([two, two, null, null]);
  });

  it.each(["re:(", "re:a)|(b", "re:(?P<name>x)"])("refuses %s", (name) => {
    expect(() => makeRecipe([[name, null]])).toThrow(InvalidArgumentError);
  });

  it("refuses a repeated name", () => {
    const pairs = [["a", null] as const, ["a", two!] as const];
    expect(() => makeRecipe(pairs)).toThrow(/"a" appears twice/);
  });
});

describe("parseRecipe", () => {
  it("reads configurations, filling in defaults, in order", () => {
    const text = `{
      "embed_tokens": { "kind": "embedding" },
      "re:.*down_proj": { "kind": "int8DynamicActivationIntxWeight", "bits": 4, "groupSize": "axis" },
      "lm_head": null
    }`;
    const recipe = parseRecipe(text, "recipe.json");
    expect(recipe.map(({ name }) => name)).toEqual(["embed_tokens", "re:.*down_proj", "lm_head"]);
    expect(recipe[0]?.config).toEqual(embedding());
    expect(selectConfig(recipe, "layers.0.down_proj")).toEqual(
      int8DynamicActivationIntxWeight({ bits: 4, groupSize: "axis" }),
    );
    expect(recipe[2]?.config).toBeNull();
  });

  it.each([
    ["{", /recipe.json: expected JSON/],
    ["[]", /recipe.json: expected a JSON object/],
    ["null", /expected a JSON object/],
    ['{"a": 4}', /"a": expected a configuration object or null/],
    ['{"a": {"bits": 4}}', /"a": kind must be one of int8DynamicActivationIntxWeight, .*, got none/],
    ['{"a": {"kind": "toString"}}', /got "toString"/],
    ['{"a": {"kind": "embedding", "bitss": 4}}', /"a": embedding: unknown field "bitss"/],
    ['{"a": {"kind": "embedding", "bits": 9}}', /"a": embedding: bits must be/],
    ['{"a": {"kind": "embedding", "bits": null}}', /"a": embedding: bits must be/],
    ['{"re:[": null}', /recipe.json: recipe: "re:\[" is not a regular expression/],
  ])("refuses %s", (text, message) => {
    expect(() => parseRecipe(text, "recipe.json")).toThrow(InvalidFileError);
    expect(() => parseRecipe(text, "recipe.json")).toThrow(message);
  });
});
