/** Converts parameter values that models write as plain text to JSON, by the tool's schema. */
import { AnswerCursor, type Reading } from "./cursor.ts";
import type { KnownTool } from "./events.ts";
import { escaped, LiteralReader } from "./literal.ts";
import { type LiteralKind, numberText, scalarText } from "./scalars.ts";
import { type JsonType, parameterTypes, type ValueTypes } from "./schema-types.ts";

/** Takes the text of one parameter piece by piece, and emits JSON as soon as it is certain. */
export class ParameterValue {
  readonly #types: ValueTypes;
  readonly #take: (json: string) => void;
  /** Whether the value can only be a string, so that its text is emitted as it comes. */
  readonly #isText: boolean;
  /** Text so far, while it could still be the word for null. */
  #text = "";
  #isStarted = false;

  constructor(tool: KnownTool | undefined, parameter: string, take: (json: string) => void) {
    this.#types = parameterTypes(tool, parameter);
    this.#take = take;
    const types = this.#types.types?.filter((type) => type !== "null");
    this.#isText = types?.length === 1 && types[0] === "string";
  }

  readonly write = (piece: string): void => {
    if (this.#isStarted) this.#take(escaped(piece));
    else {
      this.#text += piece;
      if (this.#isText && !this.#mayBeNull()) this.#begin();
    }
  };

  /** Ends the value. */
  end(): void {
    if (!this.#isStarted) this.#take(valueText(this.#text, this.#types));
    else this.#take('"');
  }

  #begin(): void {
    this.#isStarted = true;
    this.#take(`"${escaped(this.#text)}`);
  }

  #mayBeNull(): boolean {
    const word = this.#text.trim();
    return this.#types.types!.includes("null") && NULLS.some((text) => text.startsWith(word));
  }
}

const NULLS = ["null", "None", "none", "NULL"];

/** JSON of a value written as text: of the first type of the schema that the text can be, or else a string. */
function valueText(text: string, { types, values }: ValueTypes): string {
  const word = text.trim();
  const value = values?.find((one) => (typeof one === "string" ? one === text || one === word : isWritten(word, one)));
  if (value !== undefined) return typeof value === "string" ? JSON.stringify(value) : jsonText(word, value);
  if (types === null) return anyText(word) ?? JSON.stringify(text);
  if (types.includes("null") && NULLS.includes(word)) return "null";
  for (const type of types) {
    const written = typedText(text, word, type);
    if (written !== null) return written;
  }
  return JSON.stringify(text);
}

/** JSON of an enum value that a word spells, with the digits that the model wrote. */
function jsonText(word: string, value: unknown): string {
  return typeof value === "number" ? numberText(word)! : JSON.stringify(value);
}

function isWritten(word: string, value: unknown): boolean {
  const text = scalarText(word) ?? literalText(word, "json");
  return text !== null && JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
}

/** JSON of a text whose type is unknown, if it looks like a value; null otherwise. */
function anyText(word: string): string | null {
  if (Object.hasOwn(WORDS, word)) return WORDS[word]!;
  return parsed(word) === undefined ? null : word;
}

const WORDS: Readonly<Record<string, string>> = { None: "null", True: "true", False: "false" };

function typedText(text: string, word: string, type: JsonType): string | null {
  switch (type) {
    case "string":
      return JSON.stringify(text);
    case "null":
      return NULLS.includes(word) ? "null" : null;
    case "boolean":
      return /^(true|false)$/i.test(word) ? word.toLowerCase() : null;
    case "number":
    case "integer": {
      const number = numberText(word) ?? numberText(word.replace(/^([-+]?)0+(?=\d)/, "$1"));
      return number !== null && (type === "number" || Number.isInteger(Number(number))) ? number : null;
    }
    default:
      return word.startsWith(type === "array" ? "[" : "{") || (type === "array" && word.startsWith("("))
        ? containerText(word)
        : null;
  }
}

/** JSON of a list or object that is written as JSON, as Python, or with a small model's slips. */
function containerText(word: string): string | null {
  return parsed(word) === undefined ? (literalText(word, "json") ?? literalText(word, "python")) : word;
}

/** JSON of a text that is one value in this style; null where it is not. */
export function literalText(text: string, kind: LiteralKind): string | null {
  const cursor = new AnswerCursor();
  cursor.add(text);
  cursor.end();
  let json = "";
  const reader = new LiteralReader(cursor, { kind }, (piece) => {
    json += piece;
  });
  const outcome = done(reader.value());
  return outcome === "whole" && cursor.rest.trim() === "" && parsed(json) !== undefined ? json : null;
}

/** The result of a reading whose text has ended. */
function done<T>(reading: Reading<T>): T {
  for (;;) {
    const next = reading.next();
    if (next.done) return next.value;
  }
}

/** The value of a JSON text; undefined where it is not JSON. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
