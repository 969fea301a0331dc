/** `json.dumps`, as the tojson filter of chat templates uses it. */
import { sortValues } from "./compare.ts";
import { typeError, valueError } from "./faults.ts";
import { charge, chargeText, enter, leave } from "./limits.ts";
import { floatText, integerText, toText } from "./print.ts";
import { asIndex, Dict, Float, isText, isTrue, iterate, Tuple, textOf, typeName, type Value } from "./values.ts";

export interface JsonOptions {
  readonly ensureAscii: boolean;
  readonly indent: Value;
  readonly separators: Value;
  readonly sortKeys: boolean;
}

export function toJson(value: Value, { ensureAscii, indent, separators, sortKeys }: JsonOptions): string {
  const step = indent === null || isText(indent) ? toIndent(indent) : " ".repeat(indentWidth(indent));
  let [itemSeparator, keySeparator] = [step === null ? ", " : ",", ": "];
  if (separators !== null && isTrue(separators)) {
    const pair = [...iterate(separators)];
    if (pair.length !== 2) valueError(`${pair.length < 2 ? "not enough" : "too many"} values to unpack (expected 2)`);
    [itemSeparator, keySeparator] = [toText(pair[0]!), toText(pair[1]!)];
  }
  return new JsonWriter(ensureAscii, step, itemSeparator, keySeparator, sortKeys).write(value, "\n");
}

function toIndent(indent: Value): string | null {
  return indent === null ? null : toText(indent);
}

function indentWidth(indent: Value): number {
  const width = Math.max(0, asIndex(indent));
  chargeText(width);
  return width;
}

class JsonWriter {
  readonly #ensureAscii: boolean;
  readonly #step: string | null;
  readonly #itemSeparator: string;
  readonly #keySeparator: string;
  readonly #sortKeys: boolean;

  constructor(ascii: boolean, step: string | null, itemSeparator: string, keySeparator: string, sortKeys: boolean) {
    this.#ensureAscii = ascii;
    this.#step = step;
    this.#itemSeparator = itemSeparator;
    this.#keySeparator = keySeparator;
    this.#sortKeys = sortKeys;
  }

  /** `newline` is a line end and the indentation of the value's own line. */
  write(value: Value, newline: string): string {
    charge();
    if (isText(value)) return this.#string(textOf(value));
    const scalar = scalarText(value);
    if (scalar !== undefined) return scalar;
    enter();
    let text: string;
    const inner = this.#step === null ? "" : newline + this.#step;
    if (Array.isArray(value) || value instanceof Tuple) {
      const items = Array.isArray(value) ? value : value.items;
      text = this.#wrap(
        "[",
        items.map((item) => this.write(item, inner)),
        "]",
        newline,
        inner,
      );
    } else if (value instanceof Dict) text = this.#wrap("{", this.#pairs(value, inner), "}", newline, inner);
    else typeError(`Object of type ${typeName(value)} is not JSON serializable`);
    leave();
    return text;
  }

  #pairs(dict: Dict, inner: string): string[] {
    let entries = [...dict.entries()];
    if (this.#sortKeys) {
      const byKey = new Map(entries.map((entry) => [entry[0], entry]));
      entries = sortValues(entries.map(([key]) => key)).map((key) => byKey.get(key)!);
    }
    return entries.map(([key, item]) => {
      const name = isText(key) ? textOf(key) : scalarText(key);
      if (name === undefined) typeError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
      return this.#string(name) + this.#keySeparator + this.write(item, inner);
    });
  }

  #wrap(open: string, parts: readonly string[], close: string, newline: string, inner: string): string {
    if (parts.length === 0) return open + close;
    const separator = this.#itemSeparator + inner;
    let length = open.length + inner.length + newline.length;
    for (const part of parts) length += part.length + separator.length;
    chargeText(length);
    return open + inner + parts.join(separator) + (this.#step === null ? "" : newline) + close;
  }

  #string(text: string): string {
    chargeText(text.length);
    // JSON.stringify escapes lone surrogates, which Python does only with `ensure_ascii`.
    const json = JSON.stringify(text);
    if (!this.#ensureAscii)
      return /\\ud[89a-f]/.test(json)
        ? json.replace(/\\(?:u(d[89a-f]..)|.)/gs, (all, hex) =>
            hex ? String.fromCharCode(Number.parseInt(hex, 16)) : all,
          )
        : json;
    return json.replace(/[\x7f-\uffff]/g, (unit) =>
      unit === "\x7f" ? unit : `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
  }
}

/** The JSON of None, booleans and numbers; undefined for other values. */
function scalarText(value: Value): string | undefined {
  if (value === null) return "null";
  if (typeof value === "boolean" || typeof value === "number") return String(value);
  if (typeof value === "bigint") return integerText(value);
  if (!(value instanceof Float)) return undefined;
  if (Number.isFinite(value.value)) return floatText(value.value);
  if (Number.isNaN(value.value)) return "NaN";
  return value.value > 0 ? "Infinity" : "-Infinity";
}
