/** Values of parameters as text: each is what its schema allows, by ajv, and keeps the text where it may. */
import { Ajv } from "ajv";
import { describe, expect, it } from "vitest";
import { ParameterValue } from "./parameter-values.ts";

const $defs = { Code: { type: "string" }, Count: { $ref: "#/$defs/Whole" }, Whole: { type: "integer" } };

function written(schema: object, text: string): { json: string; isValid: boolean } {
  const parameters = { type: "object", properties: { p: schema }, $defs };
  let json = "";
  const value = new ParameterValue({ name: "f", parameters }, "p", (piece) => {
    json += piece;
  });
  for (const character of text) value.write(character);
  value.end();
  const validate = new Ajv({ strict: false }).compile(parameters);
  return { json, isValid: validate({ p: JSON.parse(json) }) };
}

describe("a value", () => {
  it.each([
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, "12345", '"12345"'],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, "null", "null"],
    [{ oneOf: [{ type: "null" }, { type: "string" }] }, "true", '"true"'],
    [{ allOf: [{ type: "string" }] }, "7", '"7"'],
    [{ $ref: "#/$defs/Code" }, "12", '"12"'],
    [{ $ref: "#/$defs/Count" }, "12", "12"],
    [{ const: "5" }, "5", '"5"'],
    [{ const: 5 }, "5", "5"],
    [{ enum: ["1", 2, null] }, "1", '"1"'],
    [{ enum: ["1", 2, null] }, "2", "2"],
    [{ enum: ["1", 2, null] }, "None", "null"],
    [{ type: ["number", "string"] }, "12", "12"],
    [{ type: ["string", "number"] }, "12", '"12"'],
    [{ type: ["integer", "string"] }, "1.5", '"1.5"'],
    [{ type: "string", nullable: true }, "12", '"12"'],
    [{ type: "integer", nullable: true }, "None", "null"],
    [{ anyOf: [{ type: "integer" }, { type: "array" }] }, "[1, 'a']", '[1, "a"]'],
    [{ type: "integer" }, "12345678901234567890", "12345678901234567890"],
    [{ type: "integer" }, "007", "7"],
    [{ type: "boolean" }, "True", "true"],
    [{ type: "object" }, "{'a': None}", '{"a": null}'],
    [{ allOf: [{ type: ["string", "integer"] }, { type: "number" }] }, "3", "3"],
    [{}, "12", "12"],
    [{}, "x", '"x"'],
  ])("of %j written as %s is %s", (schema, text, json) => {
    expect(written(schema, text)).toEqual({ json, isValid: true });
  });

  it("that its schema does not allow is text", () => {
    expect(written({ type: "integer" }, "some")).toEqual({ json: '"some"', isValid: false });
  });
});
