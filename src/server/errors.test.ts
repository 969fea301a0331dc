/** Whose fault an error is: the request's, the model file's or the server's. */
import { describe, expect, it } from "vitest";
import {
  ContextLengthError,
  InvalidArgumentError,
  InvalidFileError,
  LimitError,
  LowbitError,
  UnsupportedError,
} from "../errors.ts";
import { blamed } from "../runtime/blame.ts";
import { ChatTemplate } from "../text/chat-template.ts";
import { toApiError } from "./errors.ts";

describe("the status of an error", () => {
  it.each([
    [new InvalidArgumentError("temperature: expected 0 to 2"), 400],
    [new ContextLengthError("too long"), 400],
    [new UnsupportedError("schema: not cannot be enforced"), 400],
    [new LimitError("model.pte", "a template takes too long"), 400],
    [new InvalidFileError("model.pte", "logits: expected numbers but found NaN"), 500],
    [blamed("model.pte", undefined, new UnsupportedError("method forward does not end")), 500],
    [blamed("model.pte", undefined, new RangeError("Array buffer allocation failed")), 500],
    [new LowbitError("anything else"), 500],
    [new TypeError("a bug"), 500],
  ])("%s: %i", (error, status) => {
    expect(toApiError(error).status).toBe(status);
  });

  it("is 500 where a chat template asks for what is not supported", () => {
    const template = new ChatTemplate("{{ 'é'.encode() }}", "template.jinja");
    const thrown = (() => {
      try {
        template.render([{ role: "user", content: "Hello" }]);
      } catch (error) {
        return error;
      }
      return null;
    })();
    expect(thrown).toBeInstanceOf(UnsupportedError);
    const { status, message } = toApiError(thrown);
    expect(status).toBe(500);
    expect(message).toContain("the model cannot serve this request");
  });
});

it("blames a file once, by name", () => {
  const error = blamed("model.pte", undefined, new UnsupportedError("method forward does not end")) as UnsupportedError;
  expect(error).toMatchObject({ file: "model.pte", message: "model.pte: method forward does not end" });
  expect(blamed("model.pte", undefined, error)).toBe(error);
});
