/** What a running template has: variables of its functions, the text written so far, and the line it is at. */
import { checkLength } from "./limits.ts";
import { quote } from "./print.ts";
import type { Variable } from "./symbols.ts";
import { Undefined, type Value } from "./values.ts";

/** One rendering. */
export interface Run {
  /** Variables of the caller, and what the template sets at its top level. */
  readonly variables: Map<string, Value>;
  readonly globals: ReadonlyMap<string, Value>;
  /** Line of the statement or call that runs. */
  line: number;
}

/** One call of a function: the template, a block, a macro, or a recursive loop. */
export class Activation {
  readonly run: Run;
  readonly parent: Activation | null;
  /** Variables; undefined is a name without a value. */
  readonly variables: (Value | undefined)[];
  output = "";

  constructor(run: Run, parent: Activation | null, size: number) {
    this.run = run;
    this.parent = parent;
    this.variables = new Array(size).fill(undefined);
  }

  write(text: string): void {
    checkLength(this.output.length + text.length);
    this.output += text;
  }

  /** What `work` writes, instead of writing it. */
  capture(work: () => void): string {
    const before = this.output;
    this.output = "";
    work();
    const text = this.output;
    this.output = before;
    return text;
  }

  /** A variable of the caller or a global. */
  resolve(name: string): Value | undefined {
    const value = this.run.variables.get(name);
    return value === undefined ? this.run.globals.get(name) : value;
  }
}

/** The activation of the function that has the variable, seen from a function `level` levels deep. */
export function holder(activation: Activation, level: number, variable: Variable): Activation {
  let at = activation;
  for (let hops = level - variable.scope.level; hops > 0; hops--) at = at.parent!;
  return at;
}

export function undefinedName(name: string): Undefined {
  return new Undefined(() => `${quote(name)} is undefined`);
}
