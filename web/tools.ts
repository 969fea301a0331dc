/** Harmless tools that models may call: they read the clock and calculate. */
import type { ExecutableTool } from "lowbit/web";

export const tools: readonly ExecutableTool[] = [
  {
    name: "current_time",
    description: "Tells the date and time now, with the weekday and the time zone of the user.",
    parameters: { type: "object", properties: {} },
  },
  {
    name: "calculate",
    description:
      "Calculates an arithmetic expression such as (2 + 3.5) * 4 ^ 2 / 7. Operators: + - * / % ^ and brackets.",
    parameters: {
      type: "object",
      properties: { expression: { type: "string", description: "The expression." } },
      required: ["expression"],
    },
  },
];

/** What a tool gives, or what is wrong with its call, so that the model can mend it. */
export function runTool(name: string, text: string): string {
  try {
    const given = text.trim() === "" ? {} : JSON.parse(text);
    if (name === "current_time") return new Date().toLocaleString("en", { dateStyle: "full", timeStyle: "long" });
    if (name === "calculate") return `${calculate(`${given?.expression ?? ""}`)}`;
    throw new Error(`there is no tool ${name}`);
  } catch (error) {
    return `Error: ${(error as Error).message}`;
  }
}

/** Brackets may not be deeper: each is a call of a function. */
const DEPTH_MAX = 200;

/** The value of an expression by the usual rules: ^ binds strongest and to the right, then a sign, then * / %, then + -. */
export function calculate(expression: string): number {
  const parts = expression.match(/\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\*\*|\S/gi) ?? [];
  let at = 0;
  let depth = 0;
  const take = (...wanted: string[]) => (wanted.includes(parts[at] ?? "") ? parts[at++]! : null);
  const sum = (): number => {
    let value = product();
    for (let operator = take("+", "-"); operator; operator = take("+", "-")) {
      const right = product();
      value = operator === "+" ? value + right : value - right;
    }
    return value;
  };
  const product = (): number => {
    let value = signed();
    for (let operator = take("*", "/", "%"); operator; operator = take("*", "/", "%")) {
      const right = signed();
      value = operator === "*" ? value * right : operator === "/" ? value / right : value % right;
    }
    return value;
  };
  const signed = (): number => {
    if (++depth > DEPTH_MAX) throw new Error("the expression is nested too deeply");
    const sign = take("-", "+");
    const value = sign ? signed() : power();
    depth--;
    return sign === "-" ? -value : value;
  };
  const power = (): number => {
    const base = single();
    return take("^", "**") ? base ** signed() : base;
  };
  const single = (): number => {
    if (take("(")) {
      const value = sum();
      if (!take(")")) throw new Error(`expected ) ${found()}`);
      return value;
    }
    if (!/^[\d.]/.test(parts[at] ?? "")) throw new Error(`expected a number or ( ${found()}`);
    return Number(parts[at++]);
  };
  const found = () => (at < parts.length ? `but found ${parts[at]}` : "but found the end");
  const value = sum();
  if (at < parts.length) throw new Error(`expected an operator ${found()}`);
  return value;
}
