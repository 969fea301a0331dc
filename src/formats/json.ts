/** Parses JSON files of others: strict decoding, errors that name the file, short descriptions of values. */

import { InvalidFileError } from "../errors.ts";
import { parsePythonJson } from "../json-text.ts";

/** A parsed JSON object; its values are unchecked. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A JSON file, kept verbatim so that it can be embedded elsewhere unchanged. */
export interface JsonFile {
  /** Contents of the file. */
  readonly text: string;
  /** Parsed contents, parsed at first use; InvalidFileError when the text is not a JSON object. */
  readonly value: JsonObject;
}

/** Decodes UTF-8, keeping a leading U+FEFF. InvalidFileError naming `what` for invalid UTF-8. */
export function decodeUtf8(file: string, what: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new InvalidFileError(file, `${what} is not UTF-8 text`, { cause });
  }
}

/** Parses a JSON object. InvalidFileError naming `what` for anything else. */
export function parseObject(file: string, what: string, text: string): JsonObject {
  let value: unknown;
  try {
    value = parsePythonJson(text);
  } catch (cause) {
    throw new InvalidFileError(file, `${what} is not valid JSON: ${(cause as Error).message}`, { cause });
  }
  if (!isObject(value)) throw new InvalidFileError(file, `${what} should be a JSON object but is ${describe(value)}`);
  return value;
}

/** A JSON file with this text, which is parsed when first used. */
export function jsonFile(file: string, text: string): JsonFile {
  let value: JsonObject | undefined;
  return {
    text,
    get value() {
      value ??= parseObject(file, "the file", text);
      return value;
    },
  };
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A short description of a value for messages, however large it is. */
export function describe(value: unknown): string {
  if (typeof value === "string") return quote(value);
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "an array";
  return isObject(value) ? "an object" : String(value);
}

/** A name in quotes, cut at 80 characters. */
export function quote(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

/**
 * The first key that occurs twice in an object of valid JSON text, null when there is none; `JSON.parse` would silently keep
 * the last. Only the outer `depthLimit` levels are examined, which bounds the memory for deeply nested text.
 */
export function duplicateKey(text: string, depthLimit: number): string | null {
  const keysAt: Set<string>[] = [];
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text[i];
    if (char === "{" || char === "[") {
      if (depth < depthLimit) keysAt[depth] = new Set();
      depth++;
    } else if (char === "}" || char === "]") depth--;
    else if (char === '"') {
      const end = stringEnd(text, i);
      if (depth <= depthLimit && isKey(text, end)) {
        const key = JSON.parse(text.slice(i, end)) as string;
        const keys = keysAt[depth - 1]!;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      i = end - 1;
    }
  }
  return null;
}

/** Index after the string that opens at `start`. */
function stringEnd(text: string, start: number): number {
  let i = start + 1;
  while (text[i] !== '"') i += text[i] === "\\" ? 2 : 1;
  return i + 1;
}

function isKey(text: string, stringEnd: number): boolean {
  let i = stringEnd;
  while (text[i] === " " || text[i] === "\n" || text[i] === "\r" || text[i] === "\t") i++;
  return text[i] === ":";
}
