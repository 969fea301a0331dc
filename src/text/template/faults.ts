/** Errors inside a template, named as in Python and Jinja. ChatTemplate converts them to errors of the library. */

/** An exception of Python or Jinja, by the name of its class, such as "TypeError" or "UndefinedError". */
export class TemplateFault extends Error {
  readonly kind: string;
  /** Line of the template, from 1, if the fault itself knows it, as syntax errors do. */
  readonly line: number | undefined;

  constructor(kind: string, message: string, line?: number) {
    super(message);
    this.kind = kind;
    this.line = line;
  }
}

export function fault(kind: string, message: string): never {
  throw new TemplateFault(kind, message);
}

export function typeError(message: string): never {
  throw new TemplateFault("TypeError", message);
}

export function valueError(message: string): never {
  throw new TemplateFault("ValueError", message);
}

/** Whether `cause` is a fault of one of these kinds, as Python catches exceptions by class. */
export function isFault(cause: unknown, ...kinds: string[]): cause is TemplateFault {
  return cause instanceof TemplateFault && kinds.includes(cause.kind);
}
