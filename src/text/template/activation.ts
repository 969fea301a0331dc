/** Run-time state of a template: variables of its functions, the output so far, and the current line. */
import { checkLength } from "./limits.ts";
import { quote } from "./print.ts";
import type { Variable } from "./symbols.ts";
import { Undefined, type Value } from "./values.ts";

/** One rendering. */
export interface Run {
  /** Variables that the caller passed, and those that the template sets at its top level. */
  readonly variables: Map<string, Value>;
  readonly globals: ReadonlyMap<string, Value>;
  /** Line of the statement or call being executed. */
  line: number;
}

/** Stack frame of one call of a function: the template, a block, a macro, or a recursive loop. */
export class Activation {
  readonly run: Run;
  readonly parent: Activation | null;
  /** Variables by index; undefined for a name without a value. */
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

  /** Runs `work` and returns its output, which is not written. */
  capture(work: () => void): string {
    const before = this.output;
    this.output = "";
    work();
    const text = this.output;
    this.output = before;
    return text;
  }

  /** Value of a caller's variable, or else of a global. */
  resolve(name: string): Value | undefined {
    const value = this.run.variables.get(name);
    return value === undefined ? this.run.globals.get(name) : value;
  }
}

/** The activation of the function that owns the variable, seen from a function at nesting level `level`. */
export function holder(activation: Activation, level: number, variable: Variable): Activation {
  let at = activation;
  for (let hops = level - variable.scope.level; hops > 0; hops--) at = at.parent!;
  return at;
}

export function undefinedName(name: string): Undefined {
  return new Undefined(() => `${quote(name)} is undefined`);
}
