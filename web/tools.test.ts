/** The page's tools: expressions have the values that JavaScript gives them; what is wrong is told to the model. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { calculate, runTool, tools } from "./tools.ts";

describe("calculate", () => {
  it.each([
    ["2 + 3 * 4", 14],
    ["(2 + 3) * 4", 20],
    ["2 ^ 3 ^ 2", 512],
    ["-2 ^ 2", -4],
    ["2 ** -1", 0.5],
    ["10 - 4 - 3", 3],
    ["7 % 4 / 2", 1.5],
    ["1.5e3 + .5", 1500.5],
    ["--3", 3],
    ["1 / 0", Number.POSITIVE_INFINITY],
  ])("%s", (expression, value) => expect(calculate(expression)).toBe(value));

  it("is what JavaScript computes", () => {
    const { expression } = fc.letrec<{ expression: string; number: string; sum: string }>((tie) => ({
      expression: fc.oneof({ maxDepth: 6 }, tie("number"), tie("sum")),
      number: fc.integer({ min: 0, max: 999 }).map(String),
      sum: fc
        .tuple(tie("expression"), fc.constantFrom("+", "-", "*", "/", "%"), tie("expression"), fc.boolean())
        .map(([a, operator, b, isInBrackets]) => (isInBrackets ? `(${a} ${operator} ${b})` : `${a} ${operator} ${b}`)),
    }));
    fc.assert(
      fc.property(expression, (text) => {
        expect(calculate(text)).toBe(Function(`return ${text}`)());
      }),
    );
  });

  it.each([
    ["", "expected a number or ( but found the end"],
    ["2 +", "expected a number or ( but found the end"],
    ["(2", "expected ) but found the end"],
    ["2 3", "expected an operator but found 3"],
    ["alert(1)", "expected a number or ( but found a"],
    ["(".repeat(5000), "the expression is nested too deeply"],
    ["-".repeat(5000), "the expression is nested too deeply"],
  ])("refuses %j", (expression, message) => expect(() => calculate(expression)).toThrow(message));
});

describe("runTool", () => {
  it("gives results and mistakes as texts", () => {
    expect(runTool("calculate", '{"expression": "6 * 7"}')).toBe("42");
    expect(runTool("calculate", "{}")).toBe("Error: expected a number or ( but found the end");
    expect(runTool("calculate", "{")).toMatch(/^Error: /);
    expect(runTool("launch", "{}")).toBe("Error: there is no tool launch");
    expect(runTool("current_time", "")).toContain(`${new Date().getFullYear()}`);
    expect(tools.map(({ name }) => name)).toEqual(["current_time", "calculate"]);
  });
});
