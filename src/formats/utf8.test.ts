/** Expected texts are those of Python's `bytes.decode("utf-8", "surrogateescape")`. */
import { expect, it } from "vitest";
import { escapedUtf8 } from "./utf8.ts";

it.each([
  ["efbbbf23", "\uFEFF#"],
  ["efbbbf", "\uFEFF"],
  ["61ff62", "a\uDCFFb"],
  ["e296", "\uDCE2\uDC96"],
  ["eda080", "\uDCED\uDCA0\uDC80"],
  ["f09f9880f09f98", "\u{1F600}\uDCF0\uDC9F\uDC98"],
  ["c080f4908080efbfbd", "\uDCC0\uDC80\uDCF4\uDC90\uDC80\uDC80\uFFFD"],
  ["e08080", "\uDCE0\uDC80\uDC80"],
  ["f5", "\uDCF5"],
])("%s", (hex, text) => {
  expect(escapedUtf8(Buffer.from(hex, "hex"))).toBe(text);
});
