/** A Jinja template: parsed and compiled once, rendered any number of times, both within limits. */
import { compileTemplate, type Program } from "./compile-statement.ts";
import { Context } from "./context.ts";
import { TemplateFault } from "./faults.ts";
import { GLOBALS } from "./globals.ts";
import { checkLength, type TemplateLimits, withLimits } from "./limits.ts";
import { parse } from "./parser.ts";
import type { Value } from "./values.ts";

export class Template {
  readonly #program: Program;

  /** Parses and compiles. TemplateFault when the source is invalid or exceeds the limits. */
  constructor(source: string, limits: TemplateLimits) {
    this.#program = withLimits(limits, () =>
      withStackGuarded(() => {
        checkLength(source.length);
        return compileTemplate(parse(source));
      }),
    );
  }

  /** Renders with these variables. TemplateFault, with the line where it is known, when rendering fails. */
  render(variables: Readonly<Record<string, unknown>>, limits: TemplateLimits): string {
    return withLimits(limits, () => {
      const run = { variables: new Map<string, Value>(), globals: GLOBALS, line: 0 };
      return withStackGuarded(
        () => {
          const context = new Context();
          for (const [name, value] of Object.entries(variables))
            if (value !== undefined) run.variables.set(name, copyVariable(context, name, value));
          return this.#program(run);
        },
        () => run.line,
      );
    });
  }
}

/** Copies a variable. An invalid one is a fault of kind ArgumentError: the caller's, not the template's. */
function copyVariable(context: Context, name: string, value: unknown): Value {
  try {
    return context.copy(value);
  } catch (cause) {
    if (cause instanceof TemplateFault) throw new TemplateFault("ArgumentError", `${name}: ${cause.message}`);
    throw cause;
  }
}

/**
 * Adds the line to faults, and converts the platform's stack and memory errors to faults: the stack may overflow before our
 * limit.
 */
function withStackGuarded<T>(work: () => T, line: () => number = () => 0): T {
  try {
    return work();
  } catch (cause) {
    const at = line() || undefined;
    if (cause instanceof TemplateFault)
      throw cause.line === undefined ? new TemplateFault(cause.kind, cause.message, at) : cause;
    if (!(cause instanceof RangeError) && (cause as Error)?.name !== "InternalError") throw cause;
    throw new TemplateFault("LimitError", `nests deeper than the stack is: ${(cause as Error).message}`, at);
  }
}
