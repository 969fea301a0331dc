/** Compiles assignment targets to closures that assign. */
import type { Activation } from "./activation.ts";
import { compileName, type ExpressionScope } from "./compile-expression.ts";
import { fault, typeError, valueError } from "./faults.ts";
import type { Target } from "./syntax.ts";
import { Namespace, toList, typeName, type Value } from "./values.ts";

export interface TargetScope extends ExpressionScope {
  /** Whether assignments here set variables of the template itself, which blocks see. */
  readonly top: boolean;
}

export type Assign = (activation: Activation, value: Value) => void;

export function compileTarget(target: Target, scope: TargetScope): Assign {
  if (target.kind === "tuple") {
    const targets = target.items.map((item) => compileTarget(item as Target, scope));
    return (a, value) => {
      const items = unpack(value, targets.length);
      for (let i = 0; i < targets.length; i++) targets[i]!(a, items[i]!);
    };
  }
  if (target.kind === "namespace") return compileNamespaceTarget(target.name, target.attribute, scope);
  const { index } = scope.symbols.find(target.name)!;
  const { name } = target;
  if (!scope.top)
    return (a, value) => {
      a.variables[index] = value;
    };
  return (a, value) => {
    a.variables[index] = value;
    a.run.variables.set(name, value);
  };
}

function unpack(value: Value, count: number): Value[] {
  if (typeof value === "number" || value === null || typeof value === "boolean")
    typeError(`cannot unpack non-iterable ${typeName(value)} object`);
  const items = toList(value);
  if (items.length > count) valueError(`too many values to unpack (expected ${count})`);
  if (items.length < count) valueError(`not enough values to unpack (expected ${count}, got ${items.length})`);
  return items;
}

function compileNamespaceTarget(name: string, key: string, scope: TargetScope): Assign {
  const namespace = compileName(name, scope);
  return (a, value) => {
    if (key.startsWith("_"))
      fault(
        "SecurityError",
        `Chat templates cannot store underscore-prefixed attributes on a namespace, but got '${key}'. Please rename the attribute.`,
      );
    (namespace(a) as Namespace).attributes.set(key, value);
  };
}

/** Checks that targets `ns.attribute` are namespaces, which jinja2 does before it computes the value. */
export function compileNamespaceChecks(target: Target, scope: TargetScope): (activation: Activation) => void {
  const names = namespaceNames(target);
  if (names.length === 0) return () => {};
  const values = names.map((name) => compileName(name, scope));
  return (a) => {
    for (const value of values)
      if (!(value(a) instanceof Namespace))
        fault("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  };
}

function namespaceNames(target: Target): string[] {
  if (target.kind === "tuple") return target.items.flatMap((item) => namespaceNames(item as Target));
  return target.kind === "namespace" ? [target.name] : [];
}
