/** Macros, and the bodies of call blocks, which `caller()` renders. */
import { typeError } from "./faults.ts";
import { enter, leave } from "./limits.ts";
import { quote } from "./print.ts";
import { Callable, Dict, type Keywords, Tuple, Undefined, type Value } from "./values.ts";

export interface MacroShape {
  /** null for the body of a call block. */
  readonly name: string | null;
  readonly parameters: readonly string[];
  readonly takesKeywords: boolean;
  readonly takesRest: boolean;
  readonly takesCaller: boolean;
}

export class Macro extends Callable {
  readonly typeName = "Macro";
  readonly #shape: MacroShape;
  readonly #render: (args: readonly (Value | undefined)[]) => string;

  /** `render` takes the parameters in order, then, as far as the macro uses them, `caller`, `kwargs` and `varargs`. */
  constructor(shape: MacroShape, render: (args: readonly (Value | undefined)[]) => string) {
    super();
    this.#shape = shape;
    this.#render = render;
  }

  call(args: readonly Value[], keywords: Keywords): string {
    enter();
    const text = this.#render(this.#bind(args, keywords));
    leave();
    return text;
  }

  #bind(args: readonly Value[], keywords: Keywords): (Value | undefined)[] {
    const { name, parameters, takesKeywords, takesRest, takesCaller } = this.#shape;
    const rest = new Map(keywords);
    const bound: (Value | undefined)[] = args.slice(0, parameters.length);
    for (const parameter of parameters.slice(bound.length)) {
      bound.push(rest.get(parameter));
      rest.delete(parameter);
    }
    if (takesCaller && !parameters.includes("caller")) {
      bound.push(rest.get("caller") ?? new Undefined(() => "No caller defined"));
      rest.delete("caller");
    }
    const title = name === null ? "None" : quote(name);
    if (takesKeywords) bound.push(toDict(rest));
    else if (rest.has("caller"))
      typeError(
        `macro ${title} was invoked with two values for the special caller argument. This is most likely a bug.`,
      );
    else if (rest.size > 0) typeError(`macro ${title} takes no keyword argument ${quote([...rest.keys()][0]!)}`);
    if (takesRest) bound.push(new Tuple(args.slice(parameters.length)));
    else if (args.length > parameters.length)
      typeError(`macro ${title} takes not more than ${parameters.length} argument(s)`);
    return bound;
  }

  override describe(): string {
    return this.#shape.name === null ? "<Macro anonymous>" : `<Macro ${quote(this.#shape.name)}>`;
  }

  override attribute(name: string): Value | undefined {
    const { parameters, takesKeywords, takesRest, takesCaller } = this.#shape;
    switch (name) {
      case "name":
        return this.#shape.name;
      case "arguments":
        return new Tuple(parameters);
      case "catch_kwargs":
        return takesKeywords;
      case "catch_varargs":
        return takesRest;
      case "caller":
        return takesCaller;
    }
    return undefined;
  }
}

function toDict(entries: Keywords): Dict {
  const dict = new Dict();
  for (const [key, value] of entries) dict.set(key, value);
  return dict;
}
