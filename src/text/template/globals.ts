/** Global functions of templates: Jinja's, and those that transformers adds. */
import { copyDict } from "./attributes.ts";
import { fault, TemplateFault, typeError, valueError } from "./faults.ts";
import { unsupported } from "./left-out.ts";
import { charge } from "./limits.ts";
import { quote, toText } from "./print.ts";
import { Builtin, builtin } from "./signature.ts";
import { strftime } from "./strftime.ts";
import {
  asIndex,
  Callable,
  Dict,
  isText,
  iterate,
  type Keywords,
  Namespace,
  Range,
  textOf,
  toList,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Most items of a range, as in jinja2's sandbox. */
const RANGE_MAX = 100_000;

function range(args: readonly Value[], keywords: Keywords): Range {
  if (keywords.size > 0) typeError("range() takes no keyword arguments");
  if (args.length === 0) typeError("range expected at least 1 argument, got 0");
  if (args.length > 3) typeError(`range expected at most 3 arguments, got ${args.length}`);
  const [a, b, c] = args.map(asIndex) as [number, number?, number?];
  if (c === 0) valueError("range() arg 3 must not be zero");
  const made = b === undefined ? new Range(0, a, 1) : new Range(a, b, c ?? 1);
  if (made.length > RANGE_MAX)
    fault("OverflowError", `Range too big. The sandbox blocks ranges larger than MAX_RANGE (${RANGE_MAX}).`);
  return made;
}

/** `dict(mapping or pairs, **keywords)`. */
function makeDict(args: readonly Value[], keywords: Keywords): Dict {
  if (args.length > 1) typeError(`dict expected at most 1 argument, got ${args.length}`);
  const dict = args.length === 0 ? new Dict() : fromPairs(args[0]!);
  for (const [key, value] of keywords) dict.set(key, value);
  return dict;
}

function fromPairs(source: Value): Dict {
  if (source instanceof Dict) return copyDict(source);
  const dict = new Dict();
  let index = 0;
  for (const pair of iterate(source)) {
    charge();
    if (typeof pair !== "object" && typeof pair !== "string")
      typeError(`cannot convert dictionary update sequence element #${index} to a sequence`);
    const items = toList(pair);
    if (items.length !== 2)
      valueError(`dictionary update sequence element #${index} has length ${items.length}; 2 is required`);
    dict.set(items[0]!, items[1]!);
    index++;
  }
  return dict;
}

class DictType extends Callable {
  readonly typeName = "TemplateDict";

  call(args: readonly Value[], keywords: Keywords): Dict {
    return makeDict(args, keywords);
  }
}

function namespace(args: readonly Value[], keywords: Keywords): Namespace {
  const attributes = makeDict(args, keywords);
  for (const name of attributes.keys())
    if (isText(name) && textOf(name).startsWith("_"))
      fault(
        "SecurityError",
        `Chat templates cannot store underscore-prefixed attributes on a namespace, but got ${quote(textOf(name))}. Please rename the attribute.`,
      );
  return new Namespace(attributes);
}

function raiseException(message: Value): never {
  throw new TemplateFault("TemplateError", toText(message));
}

function now(format: Value): string {
  if (format instanceof Undefined || !isText(format))
    typeError(`strftime() argument 1 must be str, not ${typeName(format)}`);
  return strftime(textOf(format), new Date());
}

export const GLOBALS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ["range", new Builtin("function range", range)],
  ["dict", new DictType()],
  ["namespace", new Builtin("function namespace", namespace)],
  ...["cycler", "joiner", "lipsum"].map((name): [string, Value] => [
    name,
    new Builtin(`function ${name}`, () => fault("UnsupportedError", unsupported("function", name))),
  ]),
  ["raise_exception", builtin("raise_exception", "message", raiseException)],
  ["strftime_now", builtin("strftime_now", "format", now)],
]);
