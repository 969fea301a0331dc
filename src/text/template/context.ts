/** Copies a caller's variables to Python values, so that a template reaches or runs nothing of the caller's. */
import { typeError } from "./faults.ts";
import { charge, chargeText, enter, leave } from "./limits.ts";
import { Dict, Float, integer, type Value } from "./values.ts";

/** From this on, JSON writes integers with an exponent, which makes them floats. */
const INTEGER_END = 1e21;

/** Copies a value; the same object is copied once. */
export class Context {
  readonly #copies = new Map<object, Value>();

  copy(value: unknown): Value {
    charge();
    switch (typeof value) {
      case "string":
        chargeText(value.length);
        return value;
      case "boolean":
        return value;
      case "number":
        return Number.isInteger(value) && Math.abs(value) < INTEGER_END ? integer(value) : new Float(value);
      case "bigint":
        return integer(value);
      case "object":
        return value === null ? null : this.#object(value);
      case "undefined":
        return null;
    }
    return typeError(`values for templates are as in JSON, found a ${typeof value}`);
  }

  #object(value: object): Value {
    if (value instanceof Float) return value;
    const known = this.#copies.get(value);
    if (known !== undefined) return known;
    enter();
    const copy = Array.isArray(value) ? value.map((item) => this.copy(item)) : this.#dict(value);
    leave();
    this.#copies.set(value, copy);
    return copy;
  }

  #dict(value: object): Value {
    const { toJSON } = value as { toJSON?: unknown };
    if (typeof toJSON === "function") return this.copy(toJSON.call(value));
    const dict = new Dict();
    for (const [key, item] of value instanceof Map ? value : Object.entries(value))
      if (item !== undefined) dict.set(typeof key === "string" ? key : this.copy(key), this.copy(item));
    return dict;
  }
}
