/** Calls as `call:name{key:value}` between tokens of their own: FunctionGemma and Gemma 4. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import { readValue, wholeString } from "./json.ts";
import { escaped } from "./parameter-values.ts";

interface GemmaMarks {
  readonly start: string;
  readonly end: string;
  /** Stands on both sides of a text. */
  readonly quote: string;
}

export const FUNCTION_GEMMA: GemmaMarks = {
  ...{ start: "<start_function_call>", end: "<end_function_call>", quote: "<escape>" },
};
export const GEMMA_4: GemmaMarks = { start: "<|tool_call>", end: "<tool_call|>", quote: '<|"|>' };

export function gemma(marks: GemmaMarks): CallFormat {
  return {
    steps: [
      { kind: "text", text: `${marks.start}call:` },
      { kind: "name" },
      { kind: "arguments" },
      { kind: "text", text: marks.end },
    ],
    starts: [marks.start],
    marks: Object.values(marks),
    *read(cursor, _, writer) {
      yield* cursor.skipSpace();
      if (!(yield* cursor.takes("call:"))) return false;
      const head = yield* cursor.before(["{", marks.end, "\n"]);
      const name = head?.text.trim() ?? "";
      if (head?.mark !== "{" || !/^[\w.-]+$/.test(name) || !writer.begin(name)) return false;
      const values = new GemmaValues(cursor, marks.quote, writer.argue);
      if (!(yield* values.object())) return true;
      yield* cursor.attempt(function* () {
        yield* cursor.skipSpace();
        return yield* cursor.takes(marks.end);
      });
      return true;
    },
  };
}

/** Values in Gemma's form to JSON, which is closed where the form breaks. */
class GemmaValues {
  readonly #cursor: AnswerCursor;
  readonly #quote: string;
  readonly #take: (text: string) => void;

  constructor(cursor: AnswerCursor, quote: string, take: (text: string) => void) {
    this.#cursor = cursor;
    this.#quote = quote;
    this.#take = take;
  }

  /** Members behind an opening brace. */
  *object(): Reading<boolean> {
    const cursor = this.#cursor;
    this.#take("{");
    for (let count = 0; ; count++) {
      if ((yield* cursor.skipSpace()) === "}") break;
      const key = yield* this.#key();
      if (key === null) return this.#broken("}");
      this.#take(`${count === 0 ? "" : ", "}${JSON.stringify(key)}: `);
      if (!(yield* this.#value())) return this.#broken("}");
      if ((yield* cursor.skipSpace()) !== ",") break;
      cursor.skip(1);
    }
    this.#take("}");
    return yield* cursor.takes("}");
  }

  *#key(): Reading<string | null> {
    const cursor = this.#cursor;
    if ((yield* cursor.peek()) === '"') {
      const name = yield* wholeString(cursor);
      yield* cursor.skipSpace();
      return name !== null && (yield* cursor.takes(":")) ? name : null;
    }
    if (!(yield* cursor.takes(this.#quote))) {
      const plain = yield* cursor.before([":", "}", "\n"]);
      return plain?.mark === ":" ? plain.text.trim() : null;
    }
    const quoted = yield* cursor.before([this.#quote]);
    yield* cursor.skipSpace();
    return quoted && (yield* cursor.takes(":")) ? quoted.text : null;
  }

  *#value(): Reading<boolean> {
    const cursor = this.#cursor;
    const next = yield* cursor.skipSpace();
    if (yield* cursor.takes(this.#quote)) {
      this.#take('"');
      const end = yield* cursor.until([this.#quote], (text) => this.#take(escaped(text)));
      this.#take('"');
      return end !== null;
    }
    // Answers that are held to a schema have texts as JSON has them.
    if (next === '"') return yield* readValue(cursor, this.#take);
    if (next === "{" || next === "[") {
      cursor.skip(1);
      return yield* next === "{" ? this.object() : this.#list();
    }
    const ends = [",", "}", "]"];
    const word = yield* cursor.before(ends);
    if (word) cursor.skip(-1);
    const text = word?.text.trim() ?? "";
    const isValue = /^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?)$/.test(text);
    this.#take(isValue ? text : word ? JSON.stringify(text) : "null");
    return word !== null;
  }

  *#list(): Reading<boolean> {
    const cursor = this.#cursor;
    this.#take("[");
    for (let count = 0; ; count++) {
      if ((yield* cursor.skipSpace()) === "]") break;
      if (count > 0) this.#take(", ");
      if (!(yield* this.#value())) return this.#broken("]");
      if ((yield* cursor.skipSpace()) !== ",") break;
      cursor.skip(1);
    }
    this.#take("]");
    return yield* cursor.takes("]");
  }

  #broken(close: string): boolean {
    this.#take(close);
    return false;
  }
}
